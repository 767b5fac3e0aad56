//! Errors of the cluster, of rights, and of the configuration.

use std::net::TcpListener;

use fiber_test_support::kubeconfig;
use fiber_test_support::kubectl::{apply, get, namespace, own_address};
use fiber_test_support::program::Setup;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use serde_json::json;
use tempfile::TempDir;

use crate::cluster::{Object, leaves_nothing, new_name, program};

#[track_caller]
fn fails(setup: Setup, words: &[&str]) {
    leaves_nothing(setup.start()).code(0).says(&["error: "]).says(words);
}

fn directory() -> TempDir {
    TempDir::new().expect("there is room")
}

#[trial]
fn no_kubeconfig() {
    let home = directory();
    let setup = program("one task").env("KUBECONFIG", "/no/such/file").env("HOME", home.path());
    fails(setup, &["no cluster is configured", "/no/such/file", "KUBECONFIG"]);
    let setup = program("one task").env("KUBECONFIG", "/no/such/file").env("HOME", home.path());
    let in_a_pod = setup.env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    fails(in_a_pod, &["This pod has no token", "`automountServiceAccountToken: true`"]);
}

#[trial]
fn no_api_server() {
    let directory = directory();
    let file = kubeconfig::changed(directory.path(), |config| {
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1".into();
    });
    let setup = program("one task").env("KUBECONFIG", file);
    fails(
        setup,
        &[
            "no API server answers at https://127.0.0.1:1 (Connection refused",
            "correct the kubeconfig",
        ],
    );
}

#[trial]
fn expired_credentials() {
    let directory = directory();
    let setup = program("one task").env("KUBECONFIG", kubeconfig::expired(directory.path()));
    fails(
        setup,
        &[
            "does not accept this user's credentials",
            "they may have expired",
            "renew the kubeconfig",
        ],
    );
}

#[trial]
fn a_missing_right() {
    let directory = directory();
    let file = kubeconfig::of_user(directory.path(), "user-without-rights");
    let place = format!("in the namespace \"{}\"", namespace());
    let words = ["User \"user-without-rights\" cannot create resource \"secrets\"", &place];
    let setup = program("one task").env("KUBECONFIG", file);
    fails(
        setup,
        &[
            words[0],
            words[1],
            "kubectl apply -f deploy/kubernetes/rbac.yaml, with the namespace `fiber` changed",
        ],
    );
}

#[trial]
fn a_namespace_that_does_not_exist() {
    let setup = program("one task").env("FIBER_KUBERNETES_NAMESPACE", "nowhere");
    fails(
        setup,
        &[
            "there is no namespace `nowhere`",
            "kubectl create namespace nowhere",
            "FIBER_KUBERNETES_NAMESPACE",
        ],
    );
}

#[trial]
fn a_claim_that_does_not_exist() {
    let setup = program("one task").env("FIBER_MOUNTS", "no-such-claim:/data");
    fails(setup, &["persistentvolumeclaim \"no-such-claim\" not found", "create the claim"]);
}

#[trial]
fn a_claim_that_stays_pending() {
    let claim = new_name();
    let _claim = Object::new(&["pvc", &claim]);
    apply(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "no-such-class",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }));
    let about_claim = format!("involvedObject.name={claim}");
    wait_until("the cluster has said why", || {
        get(&["events", "--field-selector", &about_claim])["items"]
            .as_array()
            .is_some_and(|events| !events.is_empty())
    });
    let setup = program("one task")
        .env("FIBER_MOUNTS", format!("{claim}:/data"))
        .env("FIBER_SCHEDULE_TIMEOUT", "5s");
    let why = format!(
        "the claim `{claim}` is Pending (storageclass.storage.k8s.io \"no-such-class\" not found)"
    );
    fails(setup, &[&why, "`schedule_timeout` sets the limit"]);
}

#[trial]
fn an_image_that_cannot_be_pulled() {
    let name = "localhost:1/fiber-test/no-such-image:1";
    let words = [
        "its node can't get the image `localhost:1/fiber-test/no-such-image:1`",
        "connection refused",
        "pull_secrets",
    ];
    fails(program("one task").env("FIBER_IMAGE", name), &words);
}

#[trial]
fn an_image_that_takes_too_long() {
    // A registry that accepts connections and never answers.
    let registry = TcpListener::bind((own_address(), 0)).expect("a port is free");
    let name = format!("{}/fiber-test/slow:1", registry.local_addr().expect("it has one"));
    let pulls = format!("Pulling image \"{name}\"");
    // A busy node may begin to pull after a short limit.
    let mut limits = ["4s", "60s"].into_iter();
    let is_told = limits.any(|limit| {
        let setup = program("one task").env("FIBER_IMAGE", &name).env("FIBER_PULL_TIMEOUT", limit);
        let ending = leaves_nothing(setup.start()).code(0);
        let late = format!("not created within {limit} (`pull_timeout` sets the limit): ");
        ending.says(&["error: ", &late]).out.contains(&pulls)
    });
    assert!(is_told, "`{pulls}` is missing");
}

#[trial]
fn an_image_without_the_program() {
    let image = &crate::cluster::own_image().image;
    let setup =
        program("one task").env("FIBER_IMAGE", image).env("FIBER_PROGRAM", "/no/such/program");
    fails(setup, &["has no executable program at `/no/such/program`", "rebuild the image"]);
}

#[trial]
fn no_docker_engine_to_make_an_image() {
    let setup = program("one task").env("DOCKER_HOST", "unix:///no/such/socket");
    fails(
        setup,
        &[
            "no image of this program can be built for pods",
            "no Docker engine answers at unix:///no/such/socket",
        ],
    );
}

#[trial]
fn an_address_that_pods_cannot_reach() {
    let setup = program("one task").env("FIBER_BIND_HOST", "0.0.0.0");
    fails(setup, &["bind_host is 0.0.0.0", "`advertised_host`"]);
    let setup = program("one task").env("FIBER_BIND_HOST", "198.51.100.1");
    fails(setup, &["198.51.100.1", "is no address of this host"]);
}
