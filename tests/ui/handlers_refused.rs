use fiber::prelude::*;

#[fiber::message(u64)]
struct Add(u64);

struct Borrows(u64);

impl Actor for Borrows {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Borrows {
    pub async fn add(&mut self, Add(number): Add) -> u64 {
        self.0 += number;
        self.0
    }
}

struct Creates(u64);

impl Actor for Creates {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Creates {
    pub fn new(number: u64) -> Creates {
        Creates(number)
    }
}

pub struct Wrong(u64);

impl Actor for Wrong {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Wrong {
    fn add(&mut self, Add(number): Add) -> u32 {
        (self.0 + number) as u32
    }
}

pub struct WrongLater;

impl Actor for WrongLater {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl WrongLater {
    async fn add(_: Access<Self>, Add(number): Add) -> u32 {
        number as u32
    }
}

fn main() {
    println!("{}", Creates::new(1).0);
}
