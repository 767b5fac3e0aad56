//! A room: its posts, numbered from 1.

use std::collections::VecDeque;

use actix::prelude::*;
use fiber::entities::EventSourced;
use fiber::manager::Snapshot;
use serde::{Deserialize, Serialize};

/// A room keeps so many posts.
const KEPT: usize = 1000;
/// A reader who enters gets so many of the last posts.
const LATEST: usize = 50;

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Post {
    pub(crate) number: u64,
    /// The key by which a sender recognizes the post.
    id: String,
    pub(crate) name: String,
    pub(crate) text: String,
}

#[derive(Default)]
pub(crate) struct Room {
    posts: VecDeque<Post>,
}

impl Actor for Room {
    type Context = Context<Self>;
}

impl EventSourced for Room {
    type Event = Post;

    fn apply(&mut self, post: Post) {
        self.posts.push_back(post);
        if self.posts.len() > KEPT {
            self.posts.pop_front();
        }
    }
}

impl Snapshot for Room {
    type State = VecDeque<Post>;

    fn snapshot(&self) -> VecDeque<Post> {
        self.posts.clone()
    }

    fn restore(&mut self, posts: VecDeque<Post>) {
        self.posts = posts;
    }
}

/// Adds a post. The answer is the post, when it is recorded. A post that the room has is not added
/// again, so that a sender without an answer can try again.
#[fiber::message(Post)]
pub(crate) struct Say {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Asks for the posts after one, or for the latest.
#[fiber::message(Vec<Post>)]
pub(crate) struct Read {
    pub(crate) after: Option<u64>,
}

#[fiber::handlers]
impl Room {
    fn say(&mut self, Say { id, name, text }: Say) -> Post {
        if let Some(post) = self.posts.iter().rev().find(|post| post.id == id) {
            return post.clone();
        }
        let number = self.posts.back().map_or(1, |last| last.number + 1);
        let post = Post { number, id, name, text };
        self.persist(post.clone());
        post
    }

    fn read(&mut self, Read { after }: Read) -> Vec<Post> {
        match after {
            Some(after) => self.posts.iter().filter(|post| post.number > after).cloned().collect(),
            None => {
                let latest = self.posts.len().saturating_sub(LATEST)..;
                self.posts.range(latest).cloned().collect()
            }
        }
    }
}
