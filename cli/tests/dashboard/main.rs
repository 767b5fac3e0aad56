//! The dashboard in a real browser, headless Chromium: what it shows is compared with what programs
//! did. Without Chromium, these tests are skipped.

mod browser;
mod sessions;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use fiber_test_support::{Test, run_tests, trial};

use self::browser::Browser;
use self::sessions::{Dashboard, FakeSession, Program};

fn main() -> ExitCode {
    if std::env::var_os(sessions::SCENARIO).is_some() {
        return sessions::program();
    }
    let missing = browser::executable().is_none();
    if missing {
        eprintln!("skipped: there is no chromium (scripts/setup.sh observability)");
    }
    run_tests(|_| missing)
}

/// Sends a request without a cookie, and returns the whole answer.
fn request(port: u16, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[trial]
fn the_page_shows_what_the_program_did() {
    let program = Program::start();
    let dashboard = Dashboard::start(&program.pid().to_string());
    let mut page = Browser::open(&dashboard.link);
    let pool = "document.querySelector('[data-pool=\"<b>squares\"]')";
    let figures = format!(
        "[...({pool}?.querySelectorAll('.figure') ?? [])] \
         .map((one) => one.innerText.replace(/\\s+/, ' ')).join()"
    );
    page.wait_for(&format!("{figures}.includes('1 DEATHS')"));
    let shown = page.text(&figures);
    for words in ["2/2 WORKERS", "5 FAILED", "1 REDELIVERED"] {
        assert!(shown.contains(words), "`{words}` is missing in:\n{shown}");
    }
    let row = |function: &str| {
        let find = "[...document.querySelectorAll('[aria-label=Functions] tbody tr')]";
        format!(
            "{find}.find((row) => row.cells[0].innerText.endsWith('{function}'))?.innerText ?? ''"
        )
    };
    let squares = page.text(&row("square"));
    let words: Vec<&str> = squares.split_whitespace().skip(1).take(3).collect();
    assert_eq!(words, ["<b>squares", "1.0k", "0"], "{squares}");
    let even = page.text(&row("even"));
    let counts: Vec<&str> = even.split_whitespace().skip(2).take(2).collect();
    assert_eq!(counts, ["10", "5"], "{even}");
    // The name is a text, and no element.
    assert_eq!(page.text("String(document.querySelectorAll('main b > *').length)"), "0");
    page.wait_for("document.querySelector('main').innerText.includes('SIGABRT')");

    // The keyboard opens the next tab; a worker runs the long task.
    page.run("document.getElementById('tab-overview').focus()");
    page.press("ArrowRight");
    page.wait_for("location.hash === '#workers'");
    page.wait_for("document.querySelectorAll('.cell.long').length === 1");
    page.wait_for("document.querySelectorAll('.cell.idle').length === 1");
    let busy = page.text("document.querySelector('.cell.long').innerText");
    assert!(busy.contains("nap"), "{busy}");
    page.run("document.querySelector('.cell.long').focus()");
    page.press("Enter");
    page.wait_for("document.getElementById('detail').innerText.includes('pid ')");
    page.run("document.querySelector('[data-key=stack]').click()");
    page.wait_for("/nap|sleep/.test(document.getElementById('stack')?.innerText)");

    page.run("document.getElementById('tab-timeline').click()");
    page.wait_for("Number(document.querySelector('canvas')?.dataset.slices) >= 1");
    page.wait_for("document.querySelector('canvas').dataset.deaths === '1'");

    page.run("document.getElementById('tab-tree').click()");
    page.wait_for("document.querySelectorAll('.tree g[role=button]').length === 3");

    page.run("document.getElementById('tab-profile').click()");
    page.wait_for("document.querySelectorAll('#who option').length === 3");
    page.run("document.getElementById('seconds').value = 1");
    page.run("document.getElementById('idle').checked = true");
    page.run("document.querySelector('[data-key=record]').click()");
    page.wait_for("document.querySelector('#graph iframe') && !document.querySelector('#graph p')");
    assert_eq!(page.problems(), Vec::<String>::new());
    program.end();
}

#[trial]
fn a_page_without_the_token_shows_nothing() {
    let head = FakeSession::start(3);
    let dashboard = Dashboard::start(&head.pid());
    let host = format!("Host: 127.0.0.1:{}\r\n", dashboard.port);
    for path in ["/", "/?token=0", "/api/state", "/dashboard.js", "/api/stack?process=1"] {
        let answer = request(dashboard.port, path, &host);
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(
            answer.contains("the token in its link") && !answer.contains("squares"),
            "{answer}"
        );
    }
    let path = dashboard.link.split_once(&format!(":{}", dashboard.port)).unwrap().1;
    let rebound = request(dashboard.port, path, "Host: evil.example\r\n");
    assert!(rebound.starts_with("HTTP/1.1 403") && !rebound.contains("set-cookie"), "{rebound}");
    let admitted = request(dashboard.port, path, &host);
    assert!(admitted.starts_with("HTTP/1.1 303"), "{admitted}");
    // Other servers on this host, to which browsers send the cookies of all ports, do not know the
    // path.
    let page = path.split_once('?').unwrap().0;
    assert!(page.len() > 32, "{page}");
    let cookie = format!("HttpOnly; SameSite=Strict; Path={page}\r\n");
    assert!(admitted.contains(&cookie), "{admitted}");
    assert!(admitted.contains(&format!("location: {page}\r\n")), "{admitted}");
}

#[trial]
fn actors_are_sorted_by_a_column() {
    let head = FakeSession::start(4);
    let dashboard = Dashboard::start(&head.pid());
    let mut page = Browser::open(&dashboard.link);
    let rows = "[...document.querySelectorAll('[aria-label=Actors] tbody tr')]";
    let names = format!("{rows}.map((row) => row.cells[0].innerText.slice(-1)).join('')");
    page.wait_for(&format!("{names} === '123'"));
    let row = page.text(&format!("{rows}[2].innerText"));
    let wanted = ["teller-3", "bank::Teller", "30", "0", "0", "0ns", "0ns", "1", "0"];
    assert_eq!(row.split_whitespace().take(9).collect::<Vec<_>>(), wanted, "{row}");
    let mut sort = |column: &str, order: &str| {
        page.run(&format!("document.querySelector('[data-key=\"sort-{column}\"]').click()"));
        page.wait_for(&format!("{names} === '{order}'"));
    };
    sort("MSGS/S", "321");
    sort("MSGS/S", "123");
    sort("RESTARTS", "213");
    sort("ACTOR", "123");
    assert_eq!(page.problems(), Vec::<String>::new());
}

#[trial]
fn half_requests_of_strangers_give_way() {
    let head = FakeSession::start(7);
    let dashboard = Dashboard::start(&head.pid());
    let mut page = Browser::open(&dashboard.link);
    page.wait_for("document.body.innerText.includes('7/7')");
    let half = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).expect("it listens");
        // The dashboard may have closed it.
        let _ = write!(stream, "GET / HTTP/1.1\r\nHost:");
        stream
    };
    let strangers: Vec<TcpStream> = (0..500).map(half).collect();
    // It has answered after it has accepted all of them.
    let host = format!("Host: 127.0.0.1:{}\r\n", dashboard.port);
    assert!(request(dashboard.port, "/", &host).starts_with("HTTP/1.1 403"));
    let open = dashboard.descriptors();
    assert!(open < 150, "{open} descriptors are open");
    page.run("location.reload()");
    page.wait_for("document.body.innerText.includes('7/7')");
    drop(strangers);
}

#[trial]
fn a_thousand_workers_are_readable() {
    let head = FakeSession::start(1024);
    let dashboard = Dashboard::start(&head.pid());
    let mut page = Browser::open(&format!("{}#workers", dashboard.link));
    page.wait_for("document.querySelectorAll('.cell').length === 1024");
    assert_eq!(page.text("String(document.querySelectorAll('.cell.slow').length)"), "1");
    assert_eq!(page.text("String(document.querySelectorAll('.cell.long').length)"), "639");
    // All fit on a screen, and have names for those who don't see them.
    let fits = "document.querySelector('.grid').getBoundingClientRect().height < 900";
    assert_eq!(page.text(&format!("String({fits})")), "true");
    let label = page.text("document.querySelector('.cell.slow').getAttribute('aria-label')");
    assert!(label.contains("worker-1: 41.0s simulate::step"), "{label}");
    page.run("document.querySelector('.cell').focus()");
    page.press("End");
    page.wait_for("document.activeElement.getAttribute('aria-label').startsWith('worker-1024')");
    for view in ["overview", "timeline", "tree", "profile"] {
        page.run(&format!("document.getElementById('tab-{view}').click()"));
        page.wait_for(&format!("location.hash === '#{view}'"));
    }
    page.run("document.getElementById('tab-tree').click()");
    // Workers of one pool are one node until it is unfolded.
    page.wait_for("document.querySelectorAll('.tree g[role=button]').length === 2");
    page.run("document.querySelector('.tree [aria-expanded]').dispatchEvent(new Event('click'))");
    page.wait_for("document.querySelectorAll('.tree g[role=button]').length === 1026");
    assert_eq!(page.problems(), Vec::<String>::new());
}

/// Returns the elements that reach beyond the screen or their card. What scrolls by design does not
/// count: the tree, and long lines of output.
const CUT: &str = "[...document.querySelectorAll('body *')].filter((one) => \
    !one.closest('.scroll, pre') && (one.getBoundingClientRect().right > innerWidth + 1 \
    || one.matches('.card, #detail') && one.scrollWidth > one.clientWidth)) \
    .map((one) => `${one.tagName} ${one.className.baseVal ?? one.className} ${one.innerText}`).join('\\n')";

/// Draws the timeline again, and returns how many times of day it has, and which texts overlap.
const TEXTS: &str = "(() => { \
    const drawn = [], pen = CanvasRenderingContext2D.prototype, fill = pen.fillText; \
    pen.fillText = function (text, x, y) { \
        const wide = this.measureText(text).width; \
        const left = x - wide * ({ center: 0.5, right: 1 }[this.textAlign] ?? 0); \
        drawn.push({ text, left, right: left + wide, y }); \
        fill.apply(this, arguments); \
    }; \
    render(); \
    pen.fillText = fill; \
    const overlap = (one, other) => \
        one.y === other.y && one.left < other.right && other.left < one.right; \
    const overlaps = drawn.flatMap((one, i) => drawn.slice(i + 1) \
        .filter((other) => overlap(one, other)).map((other) => `${one.text} on ${other.text}`)); \
    const times = drawn.filter(({ text }) => /^\\d+:\\d+:\\d+$/.test(text)).length; \
    return `${times} times, ${overlaps.length} overlaps ${overlaps}`; \
})()";

#[trial]
fn a_phone_shows_all_of_it() {
    let head = FakeSession::start(8);
    let dashboard = Dashboard::start(&head.pid());
    let mut page = Browser::open(&dashboard.link);
    page.resize(390, 844);
    page.wait_for("innerWidth === 390 && document.body.innerText.includes('squares')");
    for view in ["overview", "workers", "timeline", "tree", "profile"] {
        page.run(&format!("document.getElementById('tab-{view}').click()"));
        assert_eq!(page.text(CUT), "", "{view}");
        let beyond = "(({ scrollWidth, clientWidth }) => `${scrollWidth - clientWidth}`)\
                      (document.documentElement)";
        assert_eq!(page.text(beyond), "0", "{view}");
    }
    page.run("document.getElementById('tab-overview').click()");
    // A number has its head beside it, as the row of heads is left out.
    let heads = "[...document.querySelectorAll('[aria-label=Functions] tbody td')] \
                 .map((one) => getComputedStyle(one, '::before').content).join()";
    assert!(page.text(heads).contains("P50"), "{}", page.text(heads));
    // A table that can be sorted keeps its heads.
    page.run("document.querySelector('[data-key=\"sort-MSGS/S\"]').click()");
    page.wait_for(
        "document.querySelector('[aria-label=Actors] tbody td').innerText === 'teller-3'",
    );
    page.run("document.querySelector('button.link').click()");
    page.wait_for("!document.getElementById('detail').hidden");
    assert_eq!(page.text(CUT), "", "with a process");

    page.run("document.getElementById('tab-timeline').click()");
    page.wait_for("Number(document.querySelector('canvas')?.dataset.slices) >= 1");
    assert_eq!(page.text(TEXTS), "3 times, 0 overlaps ");
    page.resize(1280, 1000);
    page.wait_for("innerWidth === 1280");
    assert_eq!(page.text(TEXTS), "7 times, 0 overlaps ");
    let legend = page.text("document.querySelector('.legend').innerText");
    assert!(legend.contains("failed, or its worker died"), "{legend}");
    assert_eq!(page.problems(), Vec::<String>::new());
}

#[trial]
fn long_names_stay_within_their_cards() {
    let head = FakeSession::named(9, &"W".repeat(75));
    let dashboard = Dashboard::start(&head.pid());
    let mut page = Browser::open(&dashboard.link);
    page.wait_for("document.body.innerText.includes('squaresWWW')");
    for width in [390, 800, 1280] {
        page.resize(width, 1000);
        page.wait_for(&format!("innerWidth === {width}"));
        for view in ["overview", "workers", "timeline", "tree", "profile"] {
            page.run(&format!("document.getElementById('tab-{view}').click()"));
            assert_eq!(page.text(CUT), "", "{view}, {width} px");
        }
        page.run("document.getElementById('tab-workers').click()");
        page.run("document.querySelector('.cell.slow').click()");
        page.wait_for("document.getElementById('detail').innerText.includes('worker-1WWW')");
        assert_eq!(page.text(CUT), "", "a process, {width} px");
        page.run("document.querySelector('#detail .close').click()");
    }
    assert_eq!(page.problems(), Vec::<String>::new());
}

#[trial]
fn a_page_says_that_it_needs_the_token_and_that_its_session_has_ended() {
    let head = FakeSession::start(2);
    let dashboard = Dashboard::start(&head.pid());
    let mut page = Browser::open(&format!("http://127.0.0.1:{}/", dashboard.port));
    page.wait_for("document.body.innerText.includes('needs the token in its link')");
    page.go_to(&dashboard.link);
    page.wait_for("document.body.innerText.includes('squares')");
    head.end();
    page.wait_for("document.getElementById('notice').innerText.includes('has ended')");
    drop(dashboard);
    page.wait_for("document.getElementById('notice').innerText.includes('does not answer')");
}
