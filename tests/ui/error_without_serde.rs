fn main() {
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.map(|path: String| std::fs::read(path), ["a".to_string()]);
}
