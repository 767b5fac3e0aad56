#!/usr/bin/env bash
# Builds Kubernetes 1.20.2, the control plane and a node's programs, from Debian bookworm's source
# package, into $CLUSTER_DIR/bin. The package has all dependencies, so no Go module is downloaded.
# The build takes six to twelve minutes and 4 GB on two cores, once: if all programs exist, this does
# nothing. Needs root, to install the Go compiler.

set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
bin=$state/bin
work=$state/src
version='1.20.5+really1.20.2-1.1+deb12u1'
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy)
mkdir -p "$bin"

missing=()
for program in "${programs[@]}"; do
    [[ -x $bin/$program ]] || missing+=("$program")
done
if ((${#missing[@]} == 0)); then
    exit 0
fi
if [[ $(id -u) != 0 ]]; then
    fail "Kubernetes is not built yet, and its build installs packages: run this as root"
fi
mkdir -p "$work"
log=$state/kubernetes-build.log
echo "building ${missing[*]} from Debian's source, log $log …"
trap 'code=$?; ((code == 0)) || { tail -20 "$log" >&2; echo "error: Kubernetes could not be built" >&2; }' EXIT

build() {
    install_missing "$state/kubernetes-build-install.log" go:golang-go dpkg-source:dpkg-dev

    local source=$work/gopath/src/k8s.io/kubernetes
    [[ -f $source/go.mod ]] || unpack "$source"
    cd "$source"

    # Like the package's own Makefile: in module mode, a later Go would rewrite go.mod.
    export GO111MODULE=off GOPATH=$work/gopath GOCACHE=$work/gocache GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=
    local generated=pkg/generated/openapi/zz_generated.openapi.go
    [[ -s $generated ]] || generate "$generated"

    local flags="-s -w" package
    for package in component-base/version client-go/pkg/version; do
        package=k8s.io/kubernetes/vendor/k8s.io/$package
        flags+=" -X $package.gitVersion=v1.20.2 -X $package.gitMajor=1 -X $package.gitMinor=20"
        flags+=" -X $package.gitTreeState=archive -X $package.gitCommit=faecb196815e248d3ecfb03c680a4507229c2a56"
        flags+=" -X $package.buildDate=2021-01-13T13:20:00Z"
    done
    # Without the code of cloud providers, which is most of the build. A program is moved to its place
    # when it is complete.
    for program in "${missing[@]}"; do
        go build -trimpath -tags providerless -ldflags "$flags" -o "$work/$program" "./cmd/$program"
        mv "$work/$program" "$bin/$program"
    done
    # Keep the programs only: the sources and the compiler's cache are ten times their size.
    cd "$state"
    chmod -R u+w "$work"
    rm -rf "$work"
}

# Unpacks the source package, with a package list of its own: the machine's list stays unchanged.
unpack() {
    local uri apt=$work/apt
    uri=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
    [[ -n $uri ]] || uri=$(awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) { print $i; exit } }' /etc/apt/sources.list)
    mkdir -p "$apt/sources.d" "$apt/lists/partial"
    cat >"$apt/sources.d/source.sources" <<LIST
Types: deb-src
URIs: $uri
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
LIST
    local options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/sources.d"
        -o "Dir::State::lists=$apt/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    cd "$work"
    apt-get "${options[@]}" source --download-only "kubernetes=$version"
    rm -rf "$1"
    mkdir -p "$(dirname "$1")"
    dpkg-source -x "kubernetes_$version.dsc" "$1"
}

# Generates the only generated file that the tarball lacks.
generate() {
    local packages
    go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    packages=$(grep -rlE '\+k8s:openapi-gen=' --include='*.go' pkg staging/src/k8s.io |
        grep -vE '/(code-generator|sample-apiserver|sample-controller)/|_test\.go$|/generated/|/zz_generated' |
        xargs -n1 dirname | LC_ALL=C sort -u |
        sed 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^pkg/#k8s.io/kubernetes/pkg/#' | paste -sd,)
    "$work/openapi-gen" -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h hack/boilerplate/boilerplate.generatego.txt -r "$work/openapi-violations.report"
}

build >"$log" 2>&1
echo "Kubernetes is built: $bin"
