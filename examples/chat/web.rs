//! The web pages of a chat: posts come by POST, and go out as server-sent events.
//!
//! The room has all posts, and the topic only brings them sooner. A reader knows the number of its
//! last post. It passes the next one on, leaves out those that it had, and asks the room where one
//! is missing. So a topic may lose posts: where a reader is slow, and where a web server dies after
//! a post is recorded, before it is published.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse};
use axum::routing::{get, post};
use fiber::entities::{Entity, find_entities};
use fiber::topic::{Slow, Subscription, Topic};
use futures_util::{Stream, StreamExt, stream};

use super::ROOMS;
use super::room::{Post, Read, Room, Say};

/// A reader that has had no post for this time asks the room, lest the last one be missing.
const QUIET: Duration = Duration::from_secs(2);
/// A slow reader gets so many posts from the topic, and the others from the room.
const BUFFER: usize = 100;

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", get(|| async { Html(include_str!("page.html")) }))
        .route("/rooms/{room}", get(listen))
        .route("/rooms/{room}/{name}", post(say))
}

/// An error of fiber: the client may try again.
struct Unavailable(fiber::Error);

impl From<fiber::Error> for Unavailable {
    fn from(error: fiber::Error) -> Unavailable {
        Unavailable(error)
    }
}

impl IntoResponse for Unavailable {
    fn into_response(self) -> axum::response::Response {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", self.0)).into_response()
    }
}

/// Returns the address of a room, which gets a message again when its process dies, and the topic
/// of its posts.
async fn find(room: &str) -> fiber::Result<(Entity<Room>, Topic<Post>)> {
    let rooms = find_entities::<Room>(ROOMS).await?;
    Ok((rooms.of(room).resend(), Topic::named(&format!("{ROOMS}/{room}"))?))
}

/// Adds a post to a room. A client that gets no answer posts again with the same
/// `Idempotency-Key`, to any web server.
async fn say(
    Path((room, name)): Path<(String, String)>,
    headers: HeaderMap,
    text: String,
) -> Result<String, Unavailable> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let id = key.map_or_else(|| format!("{:032x}", fastrand::u128(..)), String::from);
    let (room, live) = find(&room).await?;
    let post = room.send(Say { id, name, text }).await?;
    // The post counts already: readers that don't get it so ask the room.
    let _ = live.publish(post.clone()).await;
    Ok(format!("{}\n", post.number))
}

/// Returns the posts of a room: those after `Last-Event-ID`, which browsers send when they connect
/// again, or the latest ones, and then each new one.
async fn listen(
    Path(room): Path<String>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Unavailable> {
    let after = headers.get("last-event-id").and_then(|last| last.to_str().ok()?.parse().ok());
    let (room, live) = find(&room).await?;
    // In this order: a post between the two comes from both, and is passed on once.
    let live = live.subscribe(Slow::KeepNewest(BUFFER)).await?;
    let ready = room.send(Read { after }).await?.into();
    let reader = Reader { room, live, ready, last: after.unwrap_or(0) };
    let posts = stream::unfold(reader, |mut reader| async {
        let Post { number, name, text, .. } = reader.next().await?;
        let event = Event::default().id(number.to_string()).data(format!("{name}: {text}"));
        Some((Ok(event), reader))
    });
    Ok(Sse::new(posts).keep_alive(KeepAlive::default()))
}

struct Reader {
    room: Entity<Room>,
    live: Subscription<Post>,
    /// Posts from the room.
    ready: VecDeque<Post>,
    /// The number of the last post that was passed on.
    last: u64,
}

impl Reader {
    /// Returns the next post. The end lets the client connect again.
    async fn next(&mut self) -> Option<Post> {
        loop {
            if let Some(post) = self.ready.pop_front() {
                self.last = post.number;
                return Some(post);
            }
            match tokio::time::timeout(QUIET, self.live.next()).await {
                Ok(Some(Ok(post))) if post.number <= self.last => {}
                Ok(Some(Ok(post))) if post.number == self.last + 1 => self.ready.push_back(post),
                Ok(Some(Err(_)) | None) => return None,
                // A post is missing, or may be.
                Ok(Some(Ok(_))) | Err(_) => {
                    let after = Some(self.last);
                    self.ready = self.room.send(Read { after }).await.ok()?.into();
                }
            }
        }
    }
}
