//! What is asked, the same of ours and of the rival.

use crate::data::{self, IdShape, Random};

/// An operation that both sides have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// Nothing at all: what the protocol itself costs.
    Empty,
    /// A point for a random user.
    Play,
    /// The rank of a random user.
    Rank,
    /// The first ten.
    Top,
    /// A random user with four above and four below.
    Around,
}

/// One reply in so many is looked at in full.
const SAMPLE: u64 = 997;

/// Which users are asked about: random ones, the same on both sides for the same seed.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: Question,
    pub(crate) users: u64,
    random: Random,
    /// The user that each connection asks about.
    ids: Vec<String>,
    replies: u64,
}

impl Asked {
    pub(crate) fn new(question: Question, users: u64, connections: usize, seed: u64) -> Self {
        Asked { question, users, random: Random(seed), ids: vec![String::new(); connections], replies: 0 }
    }

    /// Draws the next user for a connection.
    pub(crate) fn draw(&mut self, connection: usize) -> &str {
        self.ids[connection] = id(self.random.below(self.users));
        &self.ids[connection]
    }

    /// The user that a connection asks about.
    pub(crate) fn id(&self, connection: usize) -> &str {
        &self.ids[connection]
    }

    /// Whether this reply is one to look at in full; the first always is.
    pub(crate) fn is_sample(&mut self) -> bool {
        self.replies += 1;
        self.replies % SAMPLE == 1
    }
}

/// The id of a user: 24 characters.
pub(crate) fn id(user: u64) -> String {
    data::id(IdShape::Numbered, user)
}
