//! GPUs that a node of the cluster reports without having them. Kubernetes counts them all the
//! same.

use crate::kubectl::{nodes, try_send};
use crate::wait::wait_until;

/// The name of the resource.
pub const GPU: &str = "nvidia.com/gpu";

/// The node reports GPUs until this is dropped.
#[derive(Debug)]
pub struct Gpus;

impl Gpus {
    /// Adds GPUs to the report of the first node.
    pub fn new(count: u32) -> Gpus {
        set(Some(count));
        Gpus
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        set(None);
    }
}

fn set(count: Option<u32>) {
    wait_until("the report of GPUs by the node", || {
        let mut node = nodes().remove(0);
        for amounts in ["capacity", "allocatable"] {
            let amounts = node["status"][amounts].as_object_mut().expect("it has some");
            match count {
                Some(count) => drop(amounts.insert(GPU.into(), count.to_string().into())),
                None => drop(amounts.remove(GPU)),
            }
        }
        // The node itself may have changed it meanwhile.
        let name = node["metadata"]["name"].as_str().expect("a name");
        try_send("replace", &format!("/api/v1/nodes/{name}/status"), &node).is_ok()
    });
}
