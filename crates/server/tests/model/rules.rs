//! Random changes of boards and profiles, checkpoints and restarts.

use super::*;

/// Fields of a board's rules as they are sent, with what they mean.
type Fields = Vec<(&'static str, String)>;

impl World {
    fn fields(&mut self, how_many_percent: u32) -> Fields {
        let random = &mut self.random;
        let mut fields: Fields = Vec::new();
        let mut choose = |name: &'static str, values: &[&str]| {
            if random.u32(..100) < how_many_percent {
                fields.push((name, (*random.choice(values.iter()).unwrap()).to_owned()));
            }
        };
        choose("score", &["\"sum\"", "\"best\"", "\"latest\""]);
        choose("order", &["\"high\"", "\"low\""]);
        choose("ties", &["\"shared\"", "\"dense\"", "\"first\""]);
        choose("resets", &["\"never\"", "\"daily\"", "\"weekly\"", "\"monthly\""]);
        choose("week_starts", &["\"monday\"", "\"friday\"", "\"sunday\"", "\"wednesday\""]);
        choose(
            "time_zone",
            &["\"UTC\"", "\"Asia/Seoul\"", "\"Europe/Berlin\"", "\"America/New_York\"", "\"Asia/Kolkata\""],
        );
        choose("decimals", &["0", "1", "3", "9", "0", "0", "10"]);
        choose("min_points", &["null", "null", "null", "-3", "0", "5"]);
        choose("max_points", &["null", "null", "null", "7", "2"]);
        choose("late_seconds", &["0", "300", "3600", "86400", "604800"]);
        fields
    }

    /// The rules that result from fields on top of others.
    fn apply(rules: &Rules, fields: &Fields) -> Result<Rules, Refused> {
        let number = |text: &str| text.parse::<i64>().unwrap();
        let name = |text: &str, names: &[&'static str]| {
            *names.iter().find(|name| **name == text.trim_matches('"')).unwrap()
        };
        let old_unit = 10_i64.pow(rules.decimals);
        let mut new = rules.clone();
        // Bounds are whole numbers here, whatever the decimals.
        let whole = |points: Option<i64>| points.map(|points| points / old_unit);
        let (mut min, mut max) = (whole(rules.min_points), whole(rules.max_points));
        for (field, text) in fields {
            let bound = || (text != "null").then(|| number(text));
            match *field {
                "score" => new.score = name(text, &["sum", "best", "latest"]),
                "order" => new.order = name(text, &["high", "low"]),
                "ties" => new.ties = name(text, &["shared", "dense", "first"]),
                "resets" => new.resets = name(text, &["never", "daily", "weekly", "monthly"]),
                "week_starts" => new.week_starts = name(text, &WEEKDAYS),
                "time_zone" => {
                    new.time_zone = name(
                        text,
                        &["UTC", "Asia/Seoul", "Europe/Berlin", "America/New_York", "Asia/Kolkata"],
                    );
                }
                "decimals" => new.decimals = u32::try_from(number(text)).unwrap(),
                "min_points" => min = bound(),
                "max_points" => max = bound(),
                _ => new.late_seconds = number(text),
            }
        }
        if new.decimals > 9 || matches!((min, max), (Some(min), Some(max)) if min > max) {
            return Err((400, "invalid_rules"));
        }
        let unit = 10_i64.pow(new.decimals);
        (new.min_points, new.max_points) = (min.map(|points| points * unit), max.map(|points| points * unit));
        Ok(new)
    }

    /// What a board that has plays keeps.
    fn check_change(board: &Board, new: &Rules) -> Result<(), Refused> {
        let old = &board.rules;
        let fixed = old.score != new.score
            || old.order != new.order
            || old.decimals != new.decimals
            || old.resets != new.resets
            || old.resets == "weekly" && old.week_starts != new.week_starts
            || old.resets != "never" && old.time_zone != new.time_zone;
        if fixed && !board.seasons.is_empty() { Err((409, "rule_fixed")) } else { Ok(()) }
    }

    async fn change_board(&mut self, method: Method, board: &str, fields: &Fields) {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let body = format!("{{{}}}", body.join(","));
        let path = format!("/v1/boards/{board}");
        let answer = self.ask(method.clone(), &path, &body).await;
        let now = self.now();
        let put = method == Method::PUT;
        let old = self.model.boards.get(board).cloned();
        let base = if put { Some(Rules::default()) } else { old.as_ref().map(|board| board.rules.clone()) };
        let expected = base.ok_or((404, "unknown_board")).and_then(|base| {
            let rules = Self::apply(&base, fields)?;
            if let Some(old) = &old {
                Self::check_change(old, &rules)?;
            }
            let status = if old.is_some() { 200 } else { 201 };
            let found = self.model.boards.entry(board.to_owned());
            let found = found.or_insert_with(|| Board::new(rules.clone(), now));
            found.rules = rules;
            Ok((status, found.reply(board)))
        });
        self.compare(&format!("{method} {path} {body}"), &answer, expected);
    }

    pub(super) async fn put_board(&mut self, board: &str) {
        let fields = self.fields(60);
        self.change_board(Method::PUT, board, &fields).await;
        let unused = self.model.boards.get(board).is_some_and(|board| board.seasons.is_empty());
        if unused && self.random.bool() {
            let fields = self.fields(30);
            self.change_board(Method::PATCH, board, &fields).await;
        }
    }

    pub(super) async fn patch_board(&mut self, board: &str) {
        let fields = if self.random.u32(..3) == 0 {
            self.fields(10)
        } else {
            // What may change at any time.
            let ties = *self.random.choice(["\"shared\"", "\"dense\"", "\"first\""].iter()).unwrap();
            let late = *self.random.choice(["0", "300", "86400"].iter()).unwrap();
            vec![("ties", ties.to_owned()), ("late_seconds", late.to_owned())]
        };
        self.change_board(Method::PATCH, board, &fields).await;
    }

    pub(super) async fn delete_board(&mut self, board: &str) {
        // A deletion finds its entries in an index; it must not lag while it does.
        self.catch_up().await;
        let path = format!("/v1/boards/{board}");
        let answer = self.ask(Method::DELETE, &path, "").await;
        let what = format!("DELETE {path}");
        let expected = self.model.board(board).and_then(|found| {
            if board == "default" {
                return Err((409, "default_board_stays"));
            }
            let mut reply = found.reply(board);
            reply.replace("state", "deleting".into());
            reply.replace("deleted_users", 0.into());
            Ok((202, reply))
        });
        let deleted = expected.is_ok();
        self.compare(&what, &answer, expected);
        if deleted {
            loop {
                let answer = self.ask(Method::GET, &path, "").await;
                if answer.status == 404 {
                    break;
                }
                assert_eq!(answer.good().get("state"), &Exact::from("deleting"), "{what}");
                let play =
                    self.app().post(&format!("{path}/scores"), r#"{"user_id":"user-0","points":1}"#).await;
                assert!(["board_being_deleted", "unknown_board"].contains(&&*play.code()), "{}", play.body);
                tokio::task::yield_now().await;
            }
            self.model.boards.remove(board);
        }
    }

    pub(super) async fn profile(&mut self) {
        let (user, now) = (self.user_id(), self.now());
        let path = format!("/v1/users/{}", in_path(&user));
        let name = [Some("Ada"), Some("Änn \"☃\""), Some("ada"), None][self.random.usize(..4)];
        let body = serde_json::json!({ "name": name }).to_string();
        let known = self.model.profiles.contains_key(&user);
        let (method, body) = match self.random.u32(..10) {
            0..5 => (Method::PUT, body.as_str()),
            5..7 => (Method::PATCH, body.as_str()),
            7..8 => (Method::DELETE, ""),
            _ => (Method::GET, ""),
        };
        let answer = self.ask(method.clone(), &path, body).await;
        let what = format!("{method} {path} {body}");
        let change = method == Method::PUT || method == Method::PATCH && known;
        if change {
            let profile = self.model.profiles.entry(user.clone()).or_insert((None, now));
            profile.0 = name.map(str::to_owned);
        }
        let found = self.model.profile(&user);
        if method == Method::DELETE && found.is_ok() {
            self.model.profiles.remove(&user);
            assert_eq!((answer.status, answer.body.as_str()), (204, ""), "{what}");
            return;
        }
        let status = if method == Method::PUT && !known { 201 } else { 200 };
        self.compare(&what, &answer, found.map(|json| (status, json)));
    }

    /// What time has made due is done. Entries that are to go are found in an index, and so are the rows of a snapshot: neither may lag.
    pub(super) async fn settle(&mut self) {
        self.catch_up().await;
        self.app().settle_due().await;
        self.catch_up().await;
        self.model.settle(self.now());
    }

    pub(super) async fn close_season(&mut self, board: &str) {
        let Some(season) = self.season(board).filter(|season| !season.is_empty()) else { return };
        // A board without resets takes no plays ever after.
        if season == "all" && self.random.u32(..10) > 0 {
            return;
        }
        self.catch_up().await;
        let path = format!("/v1/boards/{board}/seasons/{season}/close");
        let answer = self.ask(Method::POST, &path, "").await;
        self.catch_up().await;
        let now = self.now();
        let expected = self.model.close(board, &season, now);
        self.compare(&format!("POST {path}"), &answer, expected);
    }

    pub(super) async fn checkpoint(&mut self) {
        self.app().boards.write_checkpoints().await.unwrap();
        self.checkpoint_ms.get_or_insert(self.now_ms);
    }

    async fn catch_up(&self) {
        if let Store::Lagging(table) = &self.store {
            table.catch_up().await.unwrap();
        }
    }

    /// The server goes away and comes back, with its checkpoints or without.
    pub(super) async fn restart(&mut self) {
        self.catch_up().await;
        if let Store::Embedded(folder) = &self.store {
            // Every minute since the oldest checkpoint is read again: too many for a test after a jump in time. The folder
            // may be deleted at any time.
            let long_ago = self.checkpoint_ms.is_some_and(|written| self.now_ms - written > 180 * MINUTE_MS);
            if long_ago || self.random.u32(..4) == 0 {
                let _ = std::fs::remove_dir_all(folder.path().join("checkpoints"));
                self.checkpoint_ms = None;
            }
        }
        // Another start has other tags.
        self.now_ms += 1;
        self.clock.set_ms(self.now_ms);
        self.app = None;
        self.app = Some(self.store.open(&self.clock).await);
    }
}
