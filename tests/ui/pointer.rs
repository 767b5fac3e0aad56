fn double(x: u32) -> u32 {
    2 * x
}

fn main() {
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.map(double as fn(u32) -> u32, 0..3);
}
