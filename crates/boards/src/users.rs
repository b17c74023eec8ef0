//! Users: a profile with a name. A user needs none to play.

use std::sync::Arc;

use standings_table::{
    Condition, Consistency, Error as TableError, Key, Operation, Query, SortRange, limits,
};

use crate::error::{Error, Result};
use crate::ids::UserId;
use crate::named::Addition;
use crate::records::{NameRecord, UserRecord};
use crate::service::{ATTEMPTS_MAX, Boards};
use crate::standings::{checked_limit, invalid};

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
                let name_key = |name: &String| NameRecord::key(&user, name);
                let old = stored.as_ref().and_then(|stored| stored.name.as_ref()).map(name_key);
                if let Some(name) = &name {
                    let item = NameRecord { user: user.clone(), name: name.clone() }.to_item();
                    operations.extend(old.filter(|old| *old != item.key).map(Operation::delete));
                    operations.push(Operation::put(item));
                } else {
                    operations.extend(old.map(Operation::delete));
                }
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
            for _ in 0..ATTEMPTS_MAX {
                let stored = shared.table.get(&UserRecord::key(&user), Consistency::Strong).await?;
                let Some(stored) = stored.as_ref().map(UserRecord::from_item).transpose()? else {
                    return Err(Error::UnknownUser { user });
                };
                let condition = Condition::VersionEquals(stored.version);
                let mut operations = vec![Operation::delete_if(UserRecord::key(&user), condition)];
                operations.extend(stored.name.map(|name| Operation::delete(NameRecord::key(&user, &name))));
                match shared.table.transact(operations).await {
                    Ok(_) => {
                        shared.names.changed(&user, None);
                        return Ok(());
                    }
                    Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {}
                    Err(error) => {
                        // It may be gone from the table all the same.
                        shared.names.forget(&user);
                        return Err(error.into());
                    }
                }
            }
            Err(Error::Contended)
        });
        done.await.unwrap_or(Err(Error::Contended))
    }

    /// Users of a name, whatever its case, by id; at most so many.
    ///
    /// # Errors
    /// [`Error::InvalidQuestion`], or what the table says.
    pub async fn users_named(&self, name: &str, limit: Option<usize>) -> Result<Vec<NameRecord>> {
        let limit = checked_limit(limit, 10)?;
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return invalid("name", format!("must be 1 to {NAME_BYTES_MAX} bytes long"));
        }
        let mut query = Query::index("ByData", UserRecord::name_partition(name)).limit(limit);
        let mut found = Vec::new();
        loop {
            let page = self.shared.table.query(&query).await?;
            let keys: Vec<Key> = page.items.into_iter().map(|item| item.key).collect();
            for chunk in keys.chunks(limits::BATCH_GET_KEYS_MAX) {
                // The index may lag behind a rename: what counts is the profile.
                for item in
                    self.shared.table.batch_get(chunk, Consistency::Strong).await?.into_iter().flatten()
                {
                    let UserRecord { user, name: stored, .. } = UserRecord::from_item(&item)?;
                    let stored = stored.filter(|stored| stored.to_lowercase() == name.to_lowercase());
                    found.extend(stored.map(|name| NameRecord { user, name }));
                }
            }
            match page.next {
                Some(next) if found.len() < limit => query.start_after = Some(next),
                _ => break,
            }
        }
        found.sort_by(|a, b| a.user.cmp(&b.user));
        found.truncate(limit);
        Ok(found)
    }

    /// Users whose name begins so, whatever its case, by name; at most so many.
    ///
    /// # Errors
    /// [`Error::InvalidQuestion`] if too little of the name is said, or what the table says.
    pub async fn users_beginning(&self, prefix: &str, limit: Option<usize>) -> Result<Vec<NameRecord>> {
        let limit = checked_limit(limit, 10)?;
        let prefix = prefix.to_lowercase();
        if prefix.chars().count() < NameRecord::PREFIX_CHARACTERS {
            let least = NameRecord::PREFIX_CHARACTERS;
            return invalid("prefix", format!("must be at least {least} characters long"));
        }
        // No name is longer, and a key could not be.
        if prefix.len() > 2 * NAME_BYTES_MAX {
            return invalid("prefix", format!("must be at most {NAME_BYTES_MAX} bytes long"));
        }
        let mut query = Query::table(NameRecord::partition(&prefix))
            .sort(SortRange::BeginsWith(prefix.as_str().into()))
            .limit(limit);
        let mut found = Vec::new();
        loop {
            let page = self.shared.table.query(&query).await?;
            for item in &page.items {
                found.push(NameRecord::from_item(item)?);
            }
            match page.next {
                Some(next) if found.len() < limit => query.start_after = Some(next),
                _ => break,
            }
        }
        found.truncate(limit);
        Ok(found)
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
