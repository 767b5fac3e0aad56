//! Errors of Slurm alone.

use fiber_test_support::trial;

use crate::batch::fiber;
use crate::batch::input::fails;

#[trial]
fn a_configuration_that_does_not_exist() {
    let down = fiber(&["clean"]).env("SLURM_CONF", "/no/such/file");
    fails(down, 1, &["Slurm can't be used"]);
}
