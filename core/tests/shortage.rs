//! A shortage of descriptors that passes leaves nothing behind. This is a process of its own,
//! because its limit is changed.

use fiber_core::{BuildId, Ignored, entry};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn what_could_not_be_read_for_want_of_descriptors_is_read_when_there_are_some() {
    let enough = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..enough }).unwrap();
    let refused = [BuildId::current().map(drop), entry::prepare()];
    let ignored = Ignored::now();
    setrlimit(Resource::Nofile, enough).unwrap();
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("ulimit -n"), "{error}");
    }
    assert!(ignored.is_err());
    assert!(BuildId::current().unwrap().to_string().bytes().all(|byte| byte.is_ascii_hexdigit()));
    entry::prepare().unwrap();
    Ignored::now().unwrap();
}
