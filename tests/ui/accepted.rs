fn main() {
    fiber::init();
    let _ = fiber::Pool::new(1).map(|pool| pool.apply(|x: u32| x + 1, 1).wait());
}
