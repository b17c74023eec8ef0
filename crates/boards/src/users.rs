//! Users: a profile with a name. A user needs none to play.

use std::sync::Arc;

use standings_table::{Condition, Consistency, Error as TableError, Operation};

use crate::error::{Error, Result};
use crate::ids::UserId;
use crate::named::Addition;
use crate::records::UserRecord;
use crate::service::{ATTEMPTS_MAX, Boards};

/// The longest name, in bytes: four for each of 64 characters.
pub const NAME_BYTES_MAX: usize = 256;

impl Boards {
    /// A user's profile. Who has played but has none is unknown here.
    ///
    /// # Errors
    /// [`Error::UnknownUser`], or what the table says.
    pub async fn user(&self, user: &UserId) -> Result<UserRecord> {
        let item = self.shared.table.get(&UserRecord::key(user), Consistency::Strong).await?;
        item.as_ref()
            .map(UserRecord::from_item)
            .transpose()?
            .ok_or_else(|| Error::UnknownUser { user: user.clone() })
    }

    /// Makes or changes a profile; the name shows in every list at once. Says whether it was made.
    ///
    /// # Errors
    /// [`Error::InvalidProfile`], or what the table says.
    pub async fn put_user(&self, user: &UserId, name: Option<&str>) -> Result<(UserRecord, bool)> {
        if let Some(name) = name {
            check_name(name)?;
        }
        let shared = self.shared.clone();
        let (user, name) = (user.clone(), name.map(str::to_owned));
        // In a task of its own: once the table has the name, the cache must have it too, also if the caller goes away.
        let done = tokio::spawn(async move {
            let _lock = shared.locks.lock(user.as_str()).await;
            for _ in 0..ATTEMPTS_MAX {
                let stored = shared.table.get(&UserRecord::key(&user), Consistency::Strong).await?;
                let stored = stored.as_ref().map(UserRecord::from_item).transpose()?;
                let record = UserRecord {
                    user: user.clone(),
                    name: name.clone(),
                    created_at: stored
                        .as_ref()
                        .map_or_else(|| shared.clock.now_us(), |stored| stored.created_at),
                    version: stored.as_ref().map_or(1, |stored| stored.version + 1),
                };
                let condition = match &stored {
                    Some(stored) if stored.name == record.name => return Ok((stored.clone(), false)),
                    Some(stored) => Condition::VersionEquals(stored.version),
                    None => Condition::Absent,
                };
                let mark = match name {
                    Some(_) => shared.names.named.add(&user).await,
                    None => None,
                };
                let mut operations = vec![Operation::put_if(record.to_item(), condition)];
                operations.extend(mark.as_ref().map(Addition::operation));
                match shared.table.transact(operations).await {
                    Ok(_) => {
                        mark.into_iter().for_each(Addition::done);
                        shared.names.changed(&user, name.as_deref());
                        return Ok((record, stored.is_none()));
                    }
                    Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {
                        if let Some(mark) = mark {
                            mark.read_again(&*shared.table).await?;
                        }
                    }
                    Err(error) => {
                        // It may be in the table all the same.
                        shared.names.forget(&user);
                        return Err(error.into());
                    }
                }
            }
            Err(Error::Contended)
        });
        done.await.unwrap_or(Err(Error::Contended))
    }

    /// Removes a profile. Plays and scores stay, under the id alone.
    ///
    /// # Errors
    /// [`Error::UnknownUser`], or what the table says.
    pub async fn delete_user(&self, user: &UserId) -> Result<()> {
        let shared = self.shared.clone();
        let user = user.clone();
        let done = tokio::spawn(async move {
            let _lock = shared.locks.lock(user.as_str()).await;
            let delete = Operation::delete_if(UserRecord::key(&user), Condition::Present);
            match shared.table.transact(vec![delete]).await {
                Ok(_) => {
                    shared.names.changed(&user, None);
                    Ok(())
                }
                Err(TableError::ConditionFailed { .. }) => Err(Error::UnknownUser { user }),
                Err(error) => {
                    shared.names.forget(&user);
                    Err(error.into())
                }
            }
        });
        done.await.unwrap_or(Err(Error::Contended))
    }

    /// A user's name, from what is kept at hand.
    ///
    /// # Errors
    /// What the table says.
    pub async fn name_of(&self, user: &UserId) -> Result<Option<Arc<str>>> {
        if let Some(name) = self.shared.names.at_hand(user.as_str()) {
            return Ok(name);
        }
        let names = self.shared.names.read(&*self.shared.table, &[user.as_str()]).await?;
        Ok(names.into_iter().next().flatten())
    }
}

fn check_name(name: &str) -> Result<()> {
    let refuse = |why| Err(Error::InvalidProfile { field: "name", why });
    match name {
        "" => refuse("must not be empty; use null for no name"),
        name if name.len() > NAME_BYTES_MAX => refuse("must not be longer than 256 bytes"),
        name if name.chars().any(char::is_control) => refuse("must not contain control characters"),
        name if name.trim() != name => refuse("must not begin or end with a space"),
        _ => Ok(()),
    }
}
