//! The attribute macros of fiber. Use them as `fiber::main`, `fiber::message` and so on: their
//! output names items of the crate `fiber`.

mod attributes;
mod function;
mod handlers;
mod main_fn;
mod message;
mod meta;
mod size;

use proc_macro::TokenStream;

/// Makes a function the entry of a program that runs on fiber.
///
/// The function first calls `fiber::init()`. In a process that fiber has started, that call does
/// the process's work and does not return. In the head, the body runs. The body of an `async fn`
/// runs in an actix system on the calling thread, so it can start actors as well as pools.
///
/// The function is called `main` (it may be in a module, from which the program's `main` is
/// imported), takes no parameters and isn't generic. It may return any type that `main` may return.
/// The attribute takes no arguments: the environment, a file and `Pool::builder()` have the
/// settings.
///
/// ```text
/// #[fiber::main]
/// async fn main() -> fiber::Result<()> {
///     let pool = Pool::builder().processes(4).start().await?;
///     println!("{:?}", pool.map(square, 0..8).await?);
///     Ok(())
/// }
/// ```
///
/// A plain `fn main` works the same without the actix system, with `.wait()` instead of `.await`:
///
/// ```text
/// #[fiber::main]
/// fn main() -> fiber::Result<()> {
///     let pool = Pool::builder().processes(4).start().wait()?;
///     println!("{:?}", pool.map(square, 0..8).wait()?);
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    main_fn::expand(arguments.into(), item.into()).into()
}

/// Attaches resource requests to a task function.
///
/// | key | value | examples |
/// |---|---|---|
/// | `cpu` | CPU cores, a number greater than 0 | `cpu = 2`, `cpu = 0.5` |
/// | `memory` | bytes, or a whole number with its unit: `B`, `kB` (or `KB`), `MB`, `GB`, `TB` (powers of 1000), `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024) | `memory = "512MiB"`, `memory = 65536` |
/// | `gpu` | GPUs, a whole number | `gpu = 1` |
///
/// Each key is optional, but at least one is required.
///
/// ```text
/// #[fiber::meta(cpu = 2, memory = "512MiB", gpu = 1)]
/// fn render(frame: u64) -> Image {
///     …
/// }
/// ```
///
/// The attribute does not change the function, which may be `async`, inside another function, and
/// borrow in its arguments. Methods, other associated functions, closures and functions that are
/// generic over types or constants can't have the attribute: use `Pool::builder().meta(…)`, which
/// makes the requests for all tasks of a pool. A macro can't recognize an associated function
/// without `self`, so there the compiler reports "`const` items in this context need a name".
#[proc_macro_attribute]
pub fn meta(arguments: TokenStream, item: TokenStream) -> TokenStream {
    meta::expand(arguments.into(), item.into()).into()
}

/// Makes a struct or an enum a message of actors, which travels between processes.
///
/// The argument is the type of the answer; without one it is `()`. The attribute derives serde's
/// `Serialize` and `Deserialize`, whose own attributes work as usual, and implements
/// `actix::Message`. Generic types may have it; a type with a lifetime can't, because a message
/// owns its data.
///
/// ```text
/// #[fiber::message(u64)]
/// struct Add(u64);
/// ```
#[proc_macro_attribute]
pub fn message(arguments: TokenStream, item: TokenStream) -> TokenStream {
    message::expand(arguments.into(), item.into()).into()
}

/// Makes each method of an `impl` the handler of the message that it takes.
///
/// | the method | its `Handler` |
/// |---|---|
/// | `fn add(&mut self, add: Add) -> u64` | answers with the result, which may be of any type |
/// | `fn add(&mut self, add: Add, context: &mut Context<Self>) -> u64` | the same, with the actor's context |
/// | `async fn add(this: Access<Self>, add: Add) -> u64` | runs beside the other messages of the actor |
///
/// The result is that of the message. The methods stay what they are, so they can be called, too.
///
/// An async handler can't borrow the actor while it waits: the actor handles other messages in the
/// meantime. `this.with(|actor| …).await` lends the actor to a closure. What the handler does
/// before it first has to wait happens at once, before the next message is handled.
///
/// ```text
/// #[fiber::handlers]
/// impl Account {
///     fn deposit(&mut self, Deposit(amount): Deposit) -> i64 {
///         self.balance += amount;
///         self.balance
///     }
///
///     async fn pay(this: Access<Self>, Pay { to, amount }: Pay) -> Result<i64, String> {
///         to.send(Deposit(amount)).await.map_err(|error| error.to_string())?;
///         Ok(this.with(move |account| account.deposit(Deposit(-amount))).await)
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn handlers(arguments: TokenStream, item: TokenStream) -> TokenStream {
    handlers::expand(arguments.into(), item.into()).into()
}
