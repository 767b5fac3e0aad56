//! An HTTP server whose requests run in worker processes: one that crashes costs one answer.
//!
//! ```text
//! cargo run -p fiber-examples --features web --example web
//! curl localhost:8080/primes/1000000
//! ```

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::get};
use fiber::prelude::*;

/// Counts the primes below a limit. Here it would hold up all other requests.
fn count_primes(limit: u64) -> usize {
    let mut composite = vec![false; usize::try_from(limit).expect("memory has this size")];
    (2..composite.len())
        .filter(|&number| {
            let is_prime = !composite[number];
            if is_prime {
                (number * number..composite.len())
                    .step_by(number)
                    .for_each(|multiple| composite[multiple] = true);
            }
            is_prime
        })
        .count()
}

async fn primes(
    State(pool): State<Pool>,
    Path(limit): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    match pool.max_deaths(1).apply(count_primes, limit).await {
        Ok(count) => Ok(format!("{count} primes below {limit}\n")),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
    }
}

// Not `#[tokio::main]`, which starts threads before `fiber::init()`.
#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().name("primes").start().await?;
    let app = Router::new().route("/primes/{limit}", get(primes)).with_state(pool);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}/primes/1000000", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
