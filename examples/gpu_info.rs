//! Prints which GPUs a child process sees when it asks for some of its own.
//!
//! ```text
//! cargo run -p fiber-examples --example gpu_info [-- GPUS]
//! FIBER_BACKEND=docker \
//!     cargo run -p fiber-examples --features docker --example gpu_info [-- GPUS]
//! ```

use std::process::Command;

use fiber::prelude::*;

/// Lists the value of `CUDA_VISIBLE_DEVICES`, the device files, and the output of `nvidia-smi`.
fn describe() -> String {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_else(|_| "not set".into());
    let devices: Vec<String> = std::fs::read_dir("/dev")
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    let mut devices: Vec<_> =
        devices.into_iter().filter(|name| name.starts_with("nvidia")).collect();
    devices.sort();
    let devices = if devices.is_empty() { "none".into() } else { devices.join(", ") };
    let tool = Command::new("nvidia-smi").arg("-L").output();
    let listed = match tool {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        Err(error) => format!("nvidia-smi can't be run here: {error}"),
    };
    format!("CUDA_VISIBLE_DEVICES: {visible}\ndevices: {devices}\n{listed}")
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpus = std::env::args().nth(1).map_or(Ok(1), |gpus| gpus.parse())?;
    let meta = Meta::new().gpu(gpus);
    match Process::builder().name("gpu").meta(meta).spawn(describe, ()).await {
        Ok(seen) => println!("{seen}"),
        // A host without GPUs is a result of this program, not a failure.
        Err(error) => println!("no child process with {gpus} GPU(s) could run: {error}"),
    }
    Ok(())
}
