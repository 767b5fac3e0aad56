//! A shortage of descriptors that passes leaves nothing behind. This is a process of its own,
//! because its limits are changed.

use fiber_values::entry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn entries_that_could_not_be_read_for_want_of_descriptors_are_read_when_there_are_some() {
    let enough = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..enough }).unwrap();
    let refused = entry::prepare();
    setrlimit(Resource::Nofile, enough).unwrap();
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("ulimit -n"), "{error}");
    entry::prepare().unwrap();
}
