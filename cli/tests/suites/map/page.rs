//! The commands of docs/map.md run as they are written.

use std::process::{Command, Stdio};

use super::Folder;

#[test]
fn the_commands_of_the_page_run() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let page = std::fs::read_to_string(format!("{root}/docs/map.md")).expect("the page exists");
    let blocks = page.split("\n```").skip(1).step_by(2);
    let script: String = blocks
        .filter_map(|block| block.strip_prefix("sh\n"))
        // These need an engine or the network.
        .filter(|block| !block.contains("--backend") && !block.contains("install"))
        .map(|block| format!("{block}\n"))
        .collect();
    assert!(script.matches("fiber map").count() > 8, "{script}");
    let bin =
        std::path::Path::new(env!("CARGO_BIN_EXE_fiber")).parent().expect("it is in a folder");
    let path = std::env::var("PATH").expect("there are programs");
    let folder = Folder::new();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(folder.0.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .stdin(Stdio::null())
        .output()
        .expect("there is a bash");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
}
