//! Docker.

use std::process::Command;

use fiber_test_support::docker::{docker, try_docker, version};
use fiber_test_support::{is_there, processes};

use super::Engine;

pub(crate) struct Docker;

fn names(filter: &str) -> Vec<String> {
    let list = docker(&["ps", "--all", "--filter", filter, "--format", "{{.Names}}"]);
    list.lines().map(String::from).collect()
}

impl Engine for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn unit(&self) -> &'static str {
        "container"
    }

    fn separates_streams(&self) -> bool {
        true
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn set_up(&self) {
        is_there(self.name(), version);
    }

    fn units_of(&self, head: &str) -> Vec<String> {
        let heads = names(&format!("name=^{head}$"));
        // Without the head, its id is unknown.
        let Ok(id) = try_docker(&["inspect", "--format", "{{.Id}}", head]) else { return heads };
        let format = "{{.Names}} {{.Label \"fiber.owner\"}}";
        let list = docker(&["ps", "--all", "--filter", "label=fiber.owner", "--format", format]);
        let owner = format!("container {}", id.trim());
        let owned = list
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, label)| label.starts_with(&owner));
        heads.into_iter().chain(owned.map(|(name, _)| name.to_string())).collect()
    }

    fn users_of(&self, claim: &str) -> Vec<String> {
        names(&format!("volume={claim}"))
    }

    fn kill(&self, name: &str) {
        docker(&["kill", name]);
    }

    fn lose(&self, head: &str) {
        // The engine does not start containers again that it has killed itself.
        let program = docker(&["inspect", "--format", "{{.Path}}", head]);
        let mut exec =
            processes::kill_in(Command::new("docker").args(["exec", head, program.trim()]));
        // It may be killed with the container.
        let _ = exec.wait();
    }

    fn create_volume(&self, claim: &str) {
        docker(&["volume", "create", claim]);
    }

    fn remove_volume(&self, claim: &str) {
        if let Err(problem) = try_docker(&["volume", "rm", claim]) {
            eprintln!("the volume {claim} stays behind: {problem}");
        }
    }

    fn absence(&self) -> (&'static [(&'static str, &'static str)], &'static [&'static str]) {
        (
            &[("DOCKER_HOST", "unix:///no/such/socket")],
            &["no Docker engine answers at unix:///no/such/socket"],
        )
    }
}
