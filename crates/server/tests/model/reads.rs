//! Random questions: lists, users, those around them, look-ups, distributions, seasons.

use super::*;

impl World {
    pub(super) async fn list(&mut self, board: &str) {
        let season = self.season(board);
        let (mut query, now) = (Vec::new(), self.now());
        let limit = match self.random.u32(..20) {
            0..8 => None,
            8..19 => Some(self.random.usize(1..8)),
            _ => Some(*self.random.choice([0, 1, 1_000, 1_001].iter()).unwrap()),
        };
        query.extend(limit.map(|limit| format!("limit={limit}")));
        let (mut from, mut cursor) = (From::Top, None);
        match self.random.u32(..10) {
            0..4 => {}
            4..6 => {
                let rank = self.random.u64(0..30);
                query.push(format!("from_rank={rank}"));
                from = From::Rank(rank);
            }
            _ => {
                let of_another = self.random.u32(..6) == 0;
                let fitting = self.cursors.iter().filter(|(_, mark)| of_another || mark.board == board);
                cursor = self.random.choice(fitting.collect::<Vec<_>>()).cloned();
            }
        }
        let decimals = self.model.boards.get(board).map_or(0, |board| board.rules.decimals);
        let mut range = (None, None);
        if self.random.u32(..4) == 0 {
            let unit = 10_i64.pow(decimals);
            let (low, high) = (self.random.i64(-5..12) * unit, self.random.i64(-5..40) * unit);
            range =
                (Some(low).filter(|_| self.random.u32(..4) > 0), Some(high).filter(|_| self.random.bool()));
            query.extend(range.0.map(|score| format!("min_score={}", written(score, decimals))));
            query.extend(range.1.map(|score| format!("max_score={}", written(score, decimals))));
        }
        if let Some((text, mark)) = &cursor {
            query.push(format!("cursor={text}"));
            from = From::After(mark);
        }
        self.random.shuffle(&mut query);
        let mut path = self.scores(board);
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let path = with_season(path, season.as_deref());
        let (expected, mark) = match self.expected_list(board, season.as_deref(), limit, &from, range, now) {
            Ok((json, mark)) => (Ok((200, json)), mark),
            Err(refused) => (Err(refused), None),
        };
        let known = self.tags.get(&path).filter(|_| self.random.bool()).cloned();
        let mut request = Request::get(&path).body(Body::empty()).unwrap();
        if let Some((tag, _)) = &known {
            request.headers_mut().insert("if-none-match", tag.parse().unwrap());
        }
        let answer = self.app().send(request).await;
        if answer.status == 304 {
            let (_, told) = known.expect("a tag was sent");
            let (_, json) = expected.expect("what is refused has no tag");
            assert!(told == json, "GET {path} is said to be as it was\nwas      {told:?}\nexpected {json:?}");
            *self.replies.entry("not modified").or_default() += 1;
            return;
        }
        let mut masked = answer.clone();
        if expected.is_ok() {
            let mut json = answer.good();
            let cursor = json.replace("next_cursor", Exact::null());
            if let (Some(text), Some(mark)) = (cursor.text(), mark) {
                self.cursors.push((text.to_owned(), mark));
                json.replace("next_cursor", "a cursor".into());
            } else {
                json.replace("next_cursor", cursor);
            }
            masked.body = serialized(&json);
            let tag = answer.headers["etag"].to_str().unwrap().to_owned();
            self.tags.insert(path.clone(), (tag.clone(), json));
            let again = Request::get(&path).header("if-none-match", tag).body(Body::empty()).unwrap();
            assert_eq!(self.app().send(again).await.status, 304, "GET {path}: nothing has changed since");
        }
        self.compare(&format!("GET {path}"), &masked, expected);
    }

    fn expected_list(
        &self,
        board: &str,
        season: Option<&str>,
        limit: Option<usize>,
        from: &From<'_>,
        range: (Option<i64>, Option<i64>),
        now: i64,
    ) -> Result<(Exact, Option<Mark>), Refused> {
        let (name, board) = (board, self.model.board(board)?);
        let season = board.asked(season, now)?;
        let limit = limit.unwrap_or(10);
        let invalid = (400, "invalid_query");
        if !(1..=1_000).contains(&limit) {
            return Err(invalid);
        }
        match from {
            From::Rank(0) => return Err(invalid),
            From::After(mark) if mark.board != name || mark.season != season.name => {
                return Err((400, "invalid_cursor"));
            }
            _ => {}
        }
        if matches!(range, (Some(min), Some(max)) if min > max) {
            return Err(invalid);
        }
        if matches!(from, From::Rank(_)) && range != (None, None) {
            return Err(invalid);
        }
        let (rows, total, more) = board.page(&season.name, from, range, limit);
        let mark = rows.last().filter(|_| more).map(|row| Mark::new(name, &season.name, row));
        Ok((self.model.list_reply(board, &season, (&rows, total, more)), mark))
    }

    pub(super) async fn user(&mut self, board: &str) {
        let (user, season, now) = (self.user_id(), self.season(board), self.now());
        let path = with_season(format!("{}/{}", self.scores(board), in_path(&user)), season.as_deref());
        let answer = self.ask(Method::GET, &path, "").await;
        let expected = self.model.user(board, &user, season.as_deref(), now);
        self.compare(&format!("GET {path}"), &answer, expected);
    }

    pub(super) async fn around(&mut self, board: &str) {
        let (user, season, now) = (self.user_id(), self.season(board), self.now());
        let mut path = format!("/v1/boards/{board}/scores/{}/around", in_path(&user));
        let mut counts = (4, 4);
        if self.random.bool() {
            counts = (self.random.usize(0..8), self.random.usize(0..8));
            path = format!("{path}?above={}&below={}", counts.0, counts.1);
        }
        let path = with_season(path, season.as_deref());
        let answer = self.ask(Method::GET, &path, "").await;
        let expected = self.model.around(board, &user, counts, season.as_deref(), now);
        self.compare(&format!("GET {path}"), &answer, expected);
    }

    pub(super) async fn lookup(&mut self, board: &str) {
        let count = self.random.usize(0..12);
        let users: Vec<String> = (0..count).map(|_| self.user_id()).collect();
        let (season, now) = (self.season(board), self.now());
        let path = with_season(format!("/v1/boards/{board}/scores/lookup"), season.as_deref());
        let body = serde_json::json!({ "user_ids": users }).to_string();
        let answer = self.ask(Method::POST, &path, &body).await;
        let expected = self.model.lookup(board, &users, season.as_deref(), now);
        self.compare(&format!("POST {path} {body}"), &answer, expected);
    }

    pub(super) async fn distribution(&mut self, board: &str) {
        let (season, now) = (self.season(board), self.now());
        let buckets = if self.random.bool() { 20 } else { self.random.usize(1..50) };
        let path = format!("/v1/boards/{board}/distribution");
        let path = if buckets == 20 { path } else { format!("{path}?buckets={buckets}") };
        let path = with_season(path, season.as_deref());
        let answer = self.ask(Method::GET, &path, "").await;
        let expected = self.model.distribution(board, buckets, season.as_deref(), now);
        self.compare(&format!("GET {path}"), &answer, expected);
    }

    pub(super) async fn seasons(&mut self, board: &str) {
        let now = self.now();
        let named = self.season(board);
        let listed = self.model.board(board).map(|board| {
            let mut seasons = board.seasons.clone();
            seasons.insert(Season::at(&board.rules, now));
            seasons.into_iter().rev().map(|season| board.season_reply(&season, now)).collect::<Vec<_>>()
        });
        let (path, expected) = match named.filter(|name| !name.is_empty()) {
            None => {
                let reply = listed.map(|seasons| (200, Exact::from([("data", seasons.into())])));
                (format!("/v1/boards/{board}/seasons"), reply)
            }
            Some(name) => {
                let named = Exact::from(name.as_str());
                let one = listed.and_then(|seasons| {
                    let rules = &self.model.board(board)?.rules;
                    Season::named(rules, &name).ok_or((400, "invalid_season"))?;
                    let one = seasons.into_iter().find(|season| *season.get("season") == named);
                    one.map(|season| (200, season)).ok_or((404, "unknown_season"))
                });
                (format!("/v1/boards/{board}/seasons/{name}"), one)
            }
        };
        let answer = self.ask(Method::GET, &path, "").await;
        self.compare(&format!("GET {path}"), &answer, expected);
    }

    /// A user's seasons, page by page, and the best of them.
    pub(super) async fn user_seasons(&mut self, board: &str) {
        let user = self.user_id();
        let limit = self.random.usize(1..6);
        let path = format!("/v1/users/{}/seasons?board={board}&limit={limit}", in_path(&user));
        let known = self.model.board(board).map(|found| found.user_seasons(&user));
        let (mut found, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = cursor.map_or(path.clone(), |cursor| format!("{path}&cursor={cursor}"));
            let answer = self.ask(Method::GET, &page, "").await;
            if let Err(refused) = &known {
                self.compare(&format!("GET {page}"), &answer, Err(*refused));
                break;
            }
            let json = answer.good();
            let rows = json.get("data").list();
            found.extend(rows.iter().cloned());
            cursor = json.get("next_cursor").text().map(str::to_owned);
            assert!(rows.len() == limit || cursor.is_none(), "{page}: {json:?}");
            if cursor.is_none() {
                break;
            }
        }
        let path = format!("/v1/users/{}/best?board={board}", in_path(&user));
        let answer = self.ask(Method::GET, &path, "").await;
        let best = known.and_then(|(seasons, best)| {
            let seasons: Vec<Exact> = seasons.into_iter().map(|(_, season)| season).collect();
            assert!(
                found == seasons,
                "seasons of {user} on {board}\nfound    {found:?}\nexpected {seasons:?}"
            );
            let mut best = best.ok_or_else(|| self.model.absent(&user))?;
            best.replace("board", board.into());
            Ok((200, best))
        });
        self.compare(&format!("GET {path}"), &answer, best);
    }

    pub(super) async fn read_boards(&mut self, board: &str) {
        let one = self.model.board(board).map(|found| (200, found.reply(board)));
        let answer = self.ask(Method::GET, &format!("/v1/boards/{board}"), "").await;
        self.compare(&format!("GET /v1/boards/{board}"), &answer, one);
        let all: Vec<Exact> = self.model.boards.iter().map(|(name, board)| board.reply(name)).collect();
        let answer = self.ask(Method::GET, "/v1/boards", "").await;
        self.compare("GET /v1/boards", &answer, Ok((200, [("data", all.into())].into())));
    }
}

/// As JSON again.
fn serialized(json: &Exact) -> String {
    match json {
        Exact::Literal(text) => text.clone(),
        Exact::Text(text) => serde_json::to_string(text).unwrap(),
        Exact::List(values) => {
            format!("[{}]", values.iter().map(serialized).collect::<Vec<_>>().join(","))
        }
        Exact::Object(fields) => {
            let field = |(name, value): (&String, &Exact)| {
                format!("{}:{}", serde_json::to_string(name).unwrap(), serialized(value))
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
    }
}
