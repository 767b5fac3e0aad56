//! Kubeconfig files for users who may do less than the tests themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::kubectl;

/// The kubeconfig of the tests, changed, as a file in this directory.
pub(crate) fn changed(directory: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut config = kubectl::kubeconfig();
    change(&mut config);
    let path = directory.join("kubeconfig");
    std::fs::write(&path, config.to_string()).expect("there is room");
    path
}

/// That of a user, who has the rights that were granted to this name.
pub(crate) fn of_user(directory: &Path, name: &str) -> PathBuf {
    changed(directory, |config| config["users"][0]["user"]["as"] = name.into())
}

/// With a certificate of the administrator that was good until yesterday or, where the cluster's
/// authority is not at hand to sign one, with a token that the cluster does not know.
pub(crate) fn expired(directory: &Path) -> PathBuf {
    let kubeconfig_of_tests = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap_or_default());
    let authority =
        kubeconfig_of_tests.parent().map(|directory| directory.join("pki")).unwrap_or_default();
    if !authority.join("ca.key").exists() {
        return changed(directory, |config| {
            config["users"][0]["user"] = json!({"token": "expired"})
        });
    }
    let at = |name: &str| authority.join(name).display().to_string();
    openssl(directory, &["ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "key"]);
    openssl(directory, &["pkcs8", "-topk8", "-nocrypt", "-in", "key", "-out", "key.pem"]);
    openssl(
        directory,
        &["req", "-new", "-key", "key", "-subj", "/O=system:masters/CN=admin", "-out", "request"],
    );
    let (certificate, signing_key) = (at("ca.crt"), at("ca.key"));
    let mut sign =
        vec!["x509", "-req", "-in", "request", "-CA", &certificate, "-CAkey", &signing_key];
    // Only with extensions it is of the third version.
    std::fs::write(directory.join("extensions"), "extendedKeyUsage=clientAuth\n")
        .expect("there is room");
    sign.extend([
        "-set_serial",
        "1",
        "-days",
        "-1",
        "-extfile",
        "extensions",
        "-out",
        "certificate",
    ]);
    openssl(directory, &sign);
    let (certificate, key) = (directory.join("certificate"), directory.join("key.pem"));
    changed(directory, |config| {
        config["users"][0]["user"] = json!({"client-certificate": certificate, "client-key": key});
    })
}

fn openssl(directory: &Path, arguments: &[&str]) {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("openssl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
