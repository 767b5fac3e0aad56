//! The attribute macros of fiber. Users name them `fiber::main` and `fiber::meta`: what they expand
//! to names items of the crate `fiber`.

mod function;
mod main_fn;
mod meta;
mod size;

use proc_macro::TokenStream;

/// Makes a function the entry of a program that runs on fiber.
///
/// The function calls `fiber::init()` before anything else. In a process that fiber started to do
/// work, that call does the work and never comes back; in the program that a user started, the body
/// runs. The body of an `async fn` runs in an actix system on the calling thread, so that it can
/// start actors as well as pools.
///
/// The function is called `main` (it may stand in a module, from which the program's `main` is
/// imported), takes no parameters and isn't generic; it may return whatever a `main` may return.
/// The attribute takes no arguments: settings of a program are in the environment, in a file, or in
/// `Pool::builder()`.
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
/// A plain `fn main` is the same without the actix system. There `.wait()` takes the place of
/// `.await`:
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

/// Attaches to a task function what it asks of the machine that runs it.
///
/// | key | value | examples |
/// |---|---|---|
/// | `cpu` | processor cores, a number greater than 0 | `cpu = 2`, `cpu = 0.5` |
/// | `memory` | bytes, or a whole number with its unit: `B`, `kB` (or `KB`), `MB`, `GB`, `TB` (powers of 1000), `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024) | `memory = "512MiB"`, `memory = 65536` |
/// | `gpu` | graphics processors, a whole number | `gpu = 1` |
///
/// Each key is optional, and one at least is there.
///
/// ```text
/// #[fiber::meta(cpu = 2, memory = "512MiB", gpu = 1)]
/// fn render(frame: u64) -> Image {
///     …
/// }
/// ```
///
/// The function itself stays as it is. It may be `async`, stand inside another function, and borrow
/// in its arguments. Methods, other associated functions, closures and functions that are generic
/// over types or constants can't carry the attribute; for them, `Pool::builder().meta(…)` asks for
/// the same for all tasks of a pool. On an associated function without `self`, which looks to a
/// macro like any other, the compiler's own error is "`const` items in this context need a name".
#[proc_macro_attribute]
pub fn meta(arguments: TokenStream, item: TokenStream) -> TokenStream {
    meta::expand(arguments.into(), item.into()).into()
}
