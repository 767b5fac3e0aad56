//! What a child process with a graphics processor of its own sees of it.
//!
//! ```text
//! cargo run --example gpu_info -- --gpus 1
//! FIBER_BACKEND=docker cargo run --example gpu_info -- --gpus 1
//! ```

use std::process::Command;

use clap::Parser;
use fiber::prelude::*;

/// Print what a child process sees of its graphics processors.
#[derive(Parser)]
struct Arguments {
    /// Graphics processors for the child.
    #[arg(long, default_value_t = 1)]
    gpus: u32,
}

/// What CUDA was told, what devices there are, and what the driver's own tool says of them.
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
async fn main() -> fiber::Result<()> {
    let arguments = Arguments::parse();
    let meta = Meta::new().gpu(arguments.gpus);
    match Process::builder().name("gpu").meta(meta).spawn(describe, ()).await {
        Ok(seen) => println!("{seen}"),
        // No graphics processor is nothing to fail for here: it is what this program is to find
        // out.
        Err(error) => println!(
            "There is no child process with {} graphics processor(s): {error}",
            arguments.gpus
        ),
    }
    Ok(())
}
