fn main() {
    let table = vec![1, 2, 3];
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.map(move |index: u32| table[index as usize], 0..3);
}
