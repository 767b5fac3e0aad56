use std::marker::PhantomData;

#[derive(Clone, Copy)]
struct Token(PhantomData<*const ()>);

fn main() {
    let token = Token(PhantomData);
    let pool = fiber::Pool::new(1).unwrap();
    let _ = pool.map(move |x: u32| (token, x).1, 0..3);
}
