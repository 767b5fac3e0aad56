//! Messages and handlers in short, with no crate but fiber.

use fiber::prelude::*;

/// A value of its own type as an answer.
#[fiber::message(Total)]
#[derive(Clone, Debug)]
pub struct Add {
    #[serde(default)]
    pub number: u64,
}

#[derive(Clone, Debug)]
#[fiber::message]
#[serde(rename_all = "lowercase")]
enum Command {
    Clear,
    #[allow(dead_code)]
    Set { number: u64 },
}

#[fiber::message(Option<T>)]
struct Last<T: 'static>(std::marker::PhantomData<T>);

#[fiber::message]
#[derive(PartialEq)]
pub struct Total(u64);

#[fiber::message(String)]
#[allow(dead_code)]
struct Show;

#[fiber::message(bool)]
struct HasContext;

#[derive(Default)]
struct Counter<T>(u64, Option<T>);

impl<T: Unpin + 'static> Actor for Counter<T> {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl<T: Clone + Unpin + 'static> Counter<T> {
    /// Adds a number.
    pub fn add(&mut self, Add { number }: Add) -> Total {
        self.0 += number;
        Total(self.0)
    }

    fn command(&mut self, command: Command) {
        self.0 = match command {
            Command::Clear => 0,
            Command::Set { number } => number,
        };
    }

    async fn last(this: Access<Self>, _: Last<T>) -> Option<T> {
        this.with(|counter| counter.1.clone()).await
    }

    fn has_context(&self, _: HasContext, context: &mut Context<Self>) -> bool {
        context.address().connected()
    }

    #[cfg(any())]
    fn show(&self, _: Show) -> String {
        self.0.to_string()
    }
}

#[fiber::main]
async fn main() {
    let counter = Counter(1, Some("last")).start();
    assert_eq!(counter.send(Add { number: 2 }).await.unwrap().0, 3);
    counter.send(Command::Clear).await.unwrap();
    assert_eq!(counter.send(Add { number: 2 }).await.unwrap().0, 2);
    assert_eq!(counter.send(Last(Default::default())).await, Ok(Some("last")));
    assert_eq!(counter.send(HasContext).await, Ok(true));
    assert_eq!(Counter::<u8>::default().add(Add { number: 1 }).0, 1);

    // Messages have serde's derives.
    let add = |add: Add| add.number + 1;
    let process = fiber::Process::spawn(add, Add { number: 1 });
    assert_eq!(process.await.unwrap(), 2);
}
