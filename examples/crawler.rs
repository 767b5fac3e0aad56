//! A crawler of linked pages: three crawlers share the work by an actor that they find by its name,
//! send the words of each page to a group of actors, and stream what they read to the program.
//!
//! ```text
//! cargo run -p fiber-examples --example crawler [-- PAGE]
//! ```
//!
//! A page is a Markdown file; it leads to those that it links to. The first one is the README.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use actix::prelude::*;
use fiber::{AsyncManager, Group, Pool, Sender};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

const CRAWLERS: usize = 3;
const COUNTERS: usize = 2;

/// Knows which pages were found, and which one is next. It is registered as `frontier`.
#[derive(Default)]
struct Frontier {
    found: HashSet<PathBuf>,
    next: VecDeque<PathBuf>,
    /// Crawlers that wait for a page.
    waiting: Vec<oneshot::Sender<Option<PathBuf>>>,
    /// How many pages are being read.
    reading: usize,
}

impl Actor for Frontier {
    type Context = Context<Self>;
}

/// The links of a page that was read.
#[fiber::message]
struct Found(Vec<PathBuf>);

#[fiber::handlers]
impl Frontier {
    fn found(&mut self, Found(links): Found) {
        self.reading -= 1;
        self.next.extend(links.into_iter().filter(|link| self.found.insert(link.clone())));
        self.pass_on();
    }
}

/// Asks for a page to read. The answer is `None` when all were read.
#[fiber::message(Option<PathBuf>)]
struct Next;

impl Handler<Next> for Frontier {
    type Result = ResponseFuture<Option<PathBuf>>;

    fn handle(&mut self, _: Next, _: &mut Context<Self>) -> Self::Result {
        let (crawler, page) = oneshot::channel();
        self.waiting.push(crawler);
        self.pass_on();
        Box::pin(async { page.await.unwrap_or_default() })
    }
}

impl Frontier {
    fn new(first: PathBuf) -> Frontier {
        Frontier { found: [first.clone()].into(), next: [first].into(), ..Frontier::default() }
    }

    fn pass_on(&mut self) {
        let is_over = |frontier: &Frontier| frontier.next.is_empty() && frontier.reading == 0;
        while !self.waiting.is_empty() && (!self.next.is_empty() || is_over(self)) {
            let page = self.next.pop_front();
            let is_page = page.is_some();
            // A crawler that is gone does not take its page with it.
            match self.waiting.remove(0).send(page) {
                Ok(()) => self.reading += usize::from(is_page),
                Err(page) => self.next.extend(page),
            }
        }
    }
}

/// Counts some of the words.
#[derive(Default)]
struct Counter(HashMap<String, u64>);

impl Actor for Counter {
    type Context = Context<Self>;
}

#[fiber::message(Vec<(String, u64)>)]
enum Count {
    Add(String),
    /// Asks for the most frequent words.
    Top(usize),
}

#[fiber::handlers]
impl Counter {
    fn count(&mut self, count: Count) -> Vec<(String, u64)> {
        match count {
            Count::Add(word) => {
                *self.0.entry(word).or_default() += 1;
                Vec::new()
            }
            Count::Top(most) => {
                let mut all: Vec<_> = self.0.clone().into_iter().collect();
                all.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), word.clone()));
                all.truncate(most);
                all
            }
        }
    }
}

/// A page that was read.
#[derive(Serialize, Deserialize)]
struct Page {
    path: PathBuf,
    words: usize,
    links: usize,
}

/// Returns the Markdown files to which a page links.
fn links(page: &Path, text: &str) -> Vec<PathBuf> {
    let folder = page.parent().unwrap_or(Path::new("."));
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let files = targets.filter(|target| target.ends_with(".md") && !target.contains("://"));
    files.filter_map(|target| folder.join(target).canonicalize().ok()).collect()
}

/// Reads pages until there are none.
async fn crawl(out: Sender<Page>) -> fiber::Result<()> {
    let frontier = fiber::find::<Frontier>("frontier").await?;
    let counters = Group::<Count>::named("counters")?;
    while let Some(path) = frontier.send(Next).await? {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let links = links(&path, &text);
        frontier.send(Found(links.clone())).await?;
        let mut words = 0;
        for word in text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 3) {
            words += 1;
            // Each word has one counter. The answers are not waited for.
            drop(counters.send_to(word, Count::Add(word.to_lowercase())));
        }
        out.send(Page { path, words, links: links.len() }).await?;
    }
    Ok(())
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let first = std::env::args().nth(1).unwrap_or(readme.into());
    let first = Path::new(&first).canonicalize().map_err(|error| format!("{first}: {error}"))?;
    let _frontier =
        AsyncManager::builder().registered("frontier").start(Frontier::new, first).await?;
    let counters = Group::<Count>::named("counters")?;
    let mut members = Vec::new();
    for _ in 0..COUNTERS {
        let member = AsyncManager::start(Counter::default, ()).await?;
        counters.join(&member.recipient()).await?;
        members.push(member);
    }

    let pool = Pool::new(CRAWLERS)?;
    let crawlers = (0..CRAWLERS).map(|_| pool.stream(crawl, ())).collect::<Vec<_>>();
    let printing: Vec<JoinHandle<fiber::Result<()>>> = crawlers
        .into_iter()
        .map(|pages| {
            std::thread::spawn(move || {
                for page in pages.wait() {
                    let Page { path, words, links } = page?;
                    println!("{}: {words} words, {links} links", path.display());
                }
                Ok(())
            })
        })
        .collect();
    for printing in printing {
        printing.join().expect("printing does not panic")?;
    }

    let mut top = counters.send_all(Count::Top(5)).all().await?.concat();
    top.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let top: Vec<_> = top.iter().take(5).map(|(word, count)| format!("{word} {count}")).collect();
    println!("most frequent: {}", top.join(", "));
    pool.stop().await?;
    Ok(())
}
