//! A shortage that passes leaves nothing behind. This is a process of its own, because its limits
//! are changed.

use std::sync::{Arc, Mutex, PoisonError};

use fiber_core::{BuildId, Ignored, on_a_thread};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One shortage at a time: the tests are threads of one process.
static SHORTAGE: Mutex<()> = Mutex::new(());

#[test]
fn work_for_which_there_is_no_thread_is_an_error() {
    let _one = SHORTAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let enough = getrlimit(Resource::As);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let used = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
    // Room for what the test allocates, but not for a thread's stack.
    setrlimit(Resource::As, Rlimit { current: Some(used + (256 << 10)), ..enough }).unwrap();
    // The stacks of threads that have ended are used again first.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let others = std::iter::from_fn(|| {
        let ended = Arc::clone(&ended);
        let wait = move || ended.lock().unwrap().recv().is_err();
        std::thread::Builder::new().spawn(wait).ok()
    });
    let others: Vec<_> = others.collect();
    let refused = runtime.block_on(on_a_thread(|| 1));
    setrlimit(Resource::As, enough).unwrap();
    drop(end);
    assert!(others.into_iter().all(|other| other.join().unwrap()));
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("ulimit"), "{error}");
    assert_eq!(runtime.block_on(on_a_thread(|| 1)).unwrap(), 1);
    let in_its_context = || tokio::runtime::Handle::try_current().is_ok();
    assert!(runtime.block_on(on_a_thread(in_its_context)).unwrap());
    let error = runtime.block_on(on_a_thread(|| panic!("at work"))).unwrap_err().to_string();
    assert!(error.contains("panicked"), "{error}");
}

#[test]
fn what_could_not_be_read_for_want_of_descriptors_is_read_when_there_are_some() {
    let _one = SHORTAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let enough = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..enough }).unwrap();
    let refused = BuildId::current().map(drop);
    let ignored = Ignored::now();
    setrlimit(Resource::Nofile, enough).unwrap();
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("ulimit -n"), "{error}");
    assert!(ignored.is_err());
    assert!(BuildId::current().unwrap().to_string().bytes().all(|byte| byte.is_ascii_hexdigit()));
    Ignored::now().unwrap();
}
