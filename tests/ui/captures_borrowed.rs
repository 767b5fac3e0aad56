fn main() {
    let offset = 3;
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.map(|x: u32| x + offset, 0..3);
}
