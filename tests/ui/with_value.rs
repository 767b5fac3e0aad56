fn scale(x: u64, factor: u64) -> u64 {
    x * factor
}

fn main() {
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.with(3_u64).map(scale, [1, 2]);
    let _ = pool.with(3_u64).map(|x: u64, factor: &u32| x * u64::from(*factor), [1, 2]);
}
