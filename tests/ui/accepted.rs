fn main() {
    fiber::init();
    let Ok(pool) = fiber::Pool::new(1) else { return };
    assert_eq!(pool.apply(|x: u32| x + 1, 1).wait().unwrap(), 2);
    assert_eq!(pool.map(|a: u64, b: Option<u8>| a + u64::from(b.unwrap_or(1)), [(1, None)]).wait().unwrap(), [2]);

    let failures = [
        pool.apply(|| panic!("first"), ()).wait().unwrap_err(),
        pool.apply(|x: u64| -> ! { panic!("second {x}") }, 3).wait().unwrap_err(),
        pool.map(|_: u64| todo!(), [1]).wait().unwrap_err(),
        pool.try_apply(|| panic!("fourth"), ()).wait().unwrap_err(),
        pool.apply(|| async { panic!("fifth") }, ()).wait().unwrap_err(),
        pool.try_apply(|| async { panic!("sixth") }, ()).wait().unwrap_err(),
        fiber::Process::spawn(|| unimplemented!(), ()).wait().unwrap_err(),
        fiber::Ring::run(1, |_: fiber::RingNode| panic!("eighth"), ()).wait().unwrap_err(),
    ];
    assert!(failures.iter().all(|failure| failure.to_string().contains("panicked")), "{failures:?}");
}
