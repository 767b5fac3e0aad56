fn add(a: u8, b: u8) -> u8 {
    a + b
}

#[allow(clippy::too_many_arguments)]
fn nine(_: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8) {}

fn main() {
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.map(add, [1, 2]);
    let _ = pool.map(|a: u8, b: u8| a + b, [1, 2]);
    let _ = pool.apply(nine, (1, 2, 3, 4, 5, 6, 7, 8, 9));
}
