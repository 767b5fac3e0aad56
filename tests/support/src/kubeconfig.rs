//! Kubeconfig files for users with fewer rights than the tests themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::kubectl;

/// Writes a changed copy of the tests' kubeconfig into a directory.
pub fn changed(directory: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut config = kubectl::kubeconfig();
    change(&mut config);
    let path = directory.join("kubeconfig");
    std::fs::write(&path, config.to_string()).expect("the file can be written");
    path
}

/// Writes the kubeconfig of a user with the rights of this name.
pub fn of_user(directory: &Path, name: &str) -> PathBuf {
    changed(directory, |config| config["users"][0]["user"]["as"] = name.into())
}

/// Writes a kubeconfig with a certificate of the administrator that expired yesterday. Without the
/// cluster's authority to sign one, it has a token that the cluster does not know.
pub fn expired(directory: &Path) -> PathBuf {
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
    // Extensions make it a certificate of version 3.
    std::fs::write(directory.join("extensions"), "extendedKeyUsage=clientAuth\n")
        .expect("the file can be written");
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
