//! Order statistics for tens of millions of users.
