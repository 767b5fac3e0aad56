//! Errors of Slurm alone.

use fiber_test_support::program::fails;
use fiber_test_support::trial;

use crate::batch::session::{StartedSession, own_name};
use crate::batch::{fiber, run};

#[trial]
fn a_configuration_that_does_not_exist() {
    let down = fiber(&["clean"]).env("SLURM_CONF", "/no/such/file");
    fails(down, 1, &["Slurm can't be used"]);
}

#[trial]
fn a_node_that_can_not_write_the_output_is_said() {
    let session = StartedSession::under(own_name());
    let options = ["-a", "--name", &session.name, "--slurm=--output=/proc/nowhere/%j.out"];
    let errors = run(&options, "pi").run().code(1).errors;
    assert!(errors.contains("could not open the file of its output"), "{errors}");
}
