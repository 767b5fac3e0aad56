//! Tasks that answer with many values: the pages of several sites, printed as they come.
//!
//! ```text
//! cargo run -p fiber-examples --example pages
//! ```

use std::time::Duration;

use fiber::prelude::*;
use fiber::{Sender, Stream};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Page {
    site: String,
    number: u32,
    text: String,
}

/// Visits the pages of a site. A page takes a while, and each leads to the next one.
fn pages(site: String, count: u32, out: Sender<Page>) -> fiber::Result<()> {
    for number in 1..=count {
        std::thread::sleep(Duration::from_millis(20));
        let text = format!("{} words", 100 * number);
        out.send(Page { site: site.clone(), number, text }).wait()?;
    }
    Ok(())
}

/// Looks for the first page with many words. Dropping the stream stops its task.
fn find(pages: Stream<Page>) -> fiber::Result<u32> {
    for page in pages.wait() {
        let page = page?;
        if page.text == "500 words" {
            return Ok(page.number);
        }
    }
    Ok(0)
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let pool = Pool::new(3)?;
    let sites = ["news", "weather"].map(|site| pool.stream(pages, (site.to_string(), 4)));
    for page in sites.into_iter().flat_map(Stream::wait) {
        let Page { site, number, text } = page?;
        println!("{site}, page {number}: {text}");
    }

    // The stream of an endless site goes to another process.
    let endless = pool.stream(pages, ("archive".to_string(), u32::MAX));
    let found = Process::builder().try_spawn(find, endless).wait()?;
    println!("archive: page {found} has many words");
    pool.stop().wait()
}
