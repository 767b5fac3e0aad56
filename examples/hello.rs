//! The smallest program: two worker processes greet four names.
//!
//! ```text
//! cargo run -p fiber-examples --example hello
//! ```

use fiber::prelude::*;

fn greet(name: String) -> String {
    format!("Hello, {name}, from process {}", std::process::id())
}

#[fiber::main]
async fn main() -> fiber::Result<()> {
    let pool = Pool::builder().processes(2).start().await?;
    let names = ["Ada", "Edsger", "Grace", "Robin"].map(String::from);
    for greeting in pool.map(greet, names).await? {
        println!("{greeting}");
    }
    Ok(())
}
