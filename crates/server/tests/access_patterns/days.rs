//! D: a bot that tracks level and power of every player, daily.

use super::*;

const USERS: i64 = 250;
const DAILY: &str = r#"{"score":"latest","snapshots":"daily"}"#;

fn user(at: i64) -> String {
    format!("u{at:03}")
}

/// Levels of a day: several users have the same.
fn level(at: i64, day: i64) -> i64 {
    (at * 7 + day) % 90 + 1
}

async fn plays(app: &TestApp, board: &str, scores: impl Iterator<Item = (String, i64)>) {
    let plays = scores.map(|(user, points)| format!(r#"{{"user_id":"{user}","points":{points}}}"#));
    let body = format!(r#"{{"plays":[{}]}}"#, plays.collect::<Vec<_>>().join(","));
    let results = app.post(&format!("/v1/boards/{board}/scores/batch"), &body).await.good();
    for result in results.get("results").list() {
        result.get("rank").number();
    }
}

/// Everyone of a day as `user place rank score`, best first; of equal ones by who was first, which here is by id.
fn everyone(day: i64) -> Vec<String> {
    let mut users: Vec<(i64, i64)> = (0..USERS).map(|at| (-level(at, day), at)).collect();
    users.sort_unstable();
    let row = |(place, (score, at)): (usize, &(i64, i64))| {
        let rank = 1 + users.iter().filter(|other| other.0 < *score).count();
        format!("{} {} {rank} {}", user(*at), place + 1, -score)
    };
    users.iter().enumerate().map(row).collect()
}

fn placed(reply: &Exact) -> Vec<String> {
    let text = |row: &Exact| {
        let id = row.get("user_id").text().unwrap();
        format!("{id} {:?} {:?} {:?}", row.get("place"), row.get("rank"), row.get("score"))
    };
    reply.get("data").list().iter().map(text).collect()
}

/// Both boards with a snapshot of 2026-02-20 and one of 2026-02-21. Power is known of the first 50 users, and only on the second day.
async fn tracked(app: &TestApp, clock: &ManualClock) {
    clock.set_ms(ms("2026-02-20T09:00:00Z"));
    put(app, "/v1/boards/level", DAILY).await;
    put(app, "/v1/boards/power", &DAILY.replace('}', r#","decimals":1}"#)).await;
    for (day, midnight) in [(20, "2026-02-21T00:00:00Z"), (21, "2026-02-22T00:00:00Z")] {
        clock.advance_ms(3_600_000);
        plays(app, "level", (0..USERS).map(|at| (user(at), level(at, day)))).await;
        if day == 21 {
            plays(app, "power", (0..50).map(|at| (user(at), at * 100))).await;
        }
        clock.set_ms(ms(midnight));
        app.settle_due().await;
        clock.set_ms(ms(midnight) + 9 * 3_600_000);
    }
}

fn with_days<F: Future<Output = ()>>(test: impl FnOnce(TestApp, Arc<ManualClock>) -> F) {
    with_app(|app, clock| async move {
        tracked(&app, &clock).await;
        test(app.clone(), clock).await;
        app.assert_consistent().await;
    });
}

#[test]
fn d1_the_official_top_100_of_a_day_is_one_query() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms("2026-02-20T00:00:00Z")));
        let table = Arc::new(MeteredTable::new(table_in(folder.path()), SystemClock));
        let app = TestApp::open(table.clone() as Arc<dyn Table>, clock.clone(), None).await;
        tracked(&app, &clock).await;
        let queries = || table.meter().totals(meter::Kind::Query).calls;
        for (day, label) in [(20, "2026-02-20"), (21, "2026-02-21"), (21, "latest")] {
            let (all, asked) = (calls(&table), queries());
            let official = app.get(&format!("/v1/boards/level/snapshots/{label}/official")).await.good();
            assert_eq!((calls(&table) - all, queries() - asked), (1, 1), "one query and nothing else");
            assert_eq!(placed(&official), everyone(day)[..100]);
            assert_eq!(official.get("players").number(), USERS);
        }
        let one = app.get("/v1/boards/level/snapshots/2026-02-21").await.good();
        let expected = Exact::from([
            ("label", "2026-02-21".into()),
            ("season", "all".into()),
            ("state", "complete".into()),
            ("due_at", "2026-02-22T00:00:00Z".into()),
            ("taken_at", "2026-02-22T00:00:00Z".into()),
            ("finished_at", "2026-02-22T00:00:00Z".into()),
            ("players", 250.into()),
            ("done", 250.into()),
            ("official", 100.into()),
        ]);
        assert_eq!(one, expected);
        let all = app.get("/v1/boards/level/snapshots").await.good();
        let labels: Vec<&str> =
            all.get("data").list().iter().map(|one| one.get("label").text().unwrap()).collect();
        assert_eq!(labels, ["2026-02-21", "2026-02-20"], "newest first");
    });
}

#[test]
fn d2_rank_101_and_below_page_after_page() {
    with_days(|app, _| async move {
        let scores = "/v1/boards/level/snapshots/2026-02-21/scores";
        let all = everyone(21);
        for page_size in [1, 7, 40, 150, 1_000] {
            let (mut found, mut cursor, mut page) = (Vec::new(), String::new(), 0);
            loop {
                let reply = app.get(&format!("{scores}?page_size={page_size}{cursor}")).await.good();
                assert_eq!(reply.get("total").number(), USERS);
                for (index, row) in reply.get("data").list().iter().enumerate() {
                    let place = 100 + page * page_size + index + 1;
                    assert_eq!(row.get("place"), &place.into(), "page {page} of {page_size}");
                }
                found.extend(placed(&reply));
                page += 1;
                match reply.get("next_cursor").text() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            assert_eq!(found, all[100..], "{page_size} at a time");
        }
        // And any page by its place.
        for (page, page_size) in [(0, 25), (3, 25), (9, 25), (2, 101)] {
            let from = page * page_size + 1;
            let reply = app.get(&format!("{scores}?page_size={page_size}&from_rank={from}")).await.good();
            assert_eq!(placed(&reply), all[from - 1..(from - 1 + page_size).min(250)]);
        }
        assert_eq!(placed(&app.get(&format!("{scores}?from_rank=251")).await.good()), [""; 0]);
    });
}

#[test]
fn d3_a_users_history_of_both_boards_newest_first() {
    with_days(|app, clock| async move {
        let path = "/v1/users/u007/history?board=level&board=power";
        let rank = |day: i64| {
            let row = everyone(day).into_iter().find(|row| row.starts_with("u007 ")).unwrap();
            Exact::Literal(row.split(' ').nth(2).unwrap().to_owned())
        };
        let day = |date: &str, level: (i64, Exact), power: (Exact, Exact)| {
            Exact::from([
                ("date", date.into()),
                ("level", Exact::Literal(level.0.to_string())),
                ("level_rank", level.1),
                ("power", power.0),
                ("power_rank", power.1),
            ])
        };
        let last =
            day("2026-02-21", (level(7, 21), rank(21)), (Exact::Literal("700.0".to_owned()), 43.into()));
        let first = day("2026-02-20", (level(7, 20), rank(20)), (Exact::null(), Exact::null()));
        let both = app.get(path).await;
        assert_eq!(both.good().get("data"), &vec![last.clone(), first.clone()].into());
        assert!(both.body.starts_with(r#"{"data":[{"date":"2026-02-21","level":"#), "in the order asked");
        assert_eq!(app.get("/v1/users/u007/history").await.good(), both.good(), "all boards with days");
        for (range, days) in [
            ("&from=2026-01-01&to=2026-02-21", vec![last.clone(), first.clone()]),
            ("&from=2026-02-21", vec![last.clone()]),
            ("&to=2026-02-20", vec![first.clone()]),
            ("&from=2026-01-01&to=2026-02-19", vec![]),
        ] {
            assert_eq!(app.get(&format!("{path}{range}")).await.good().get("data"), &days.into(), "{range}");
        }
        let page = app.get(&format!("{path}&limit=1")).await.good();
        assert_eq!(page.get("data"), &vec![last].into());
        let next = page.get("next_cursor").text().unwrap();
        let page = app.get(&format!("{path}&limit=1&cursor={next}")).await.good();
        assert_eq!((page.get("data"), page.get("next_cursor")), (&vec![first].into(), &Exact::null()));
        // Snapshots that are not of a day are no days.
        app.post("/v1/boards/level/snapshots", r#"{"label":"before-the-patch"}"#).await.good();
        clock.advance_ms(1);
        app.settle_due().await;
        assert_eq!(app.get(path).await.good(), both.good());
        assert_eq!(app.get("/v1/users/nobody/history").await.good().get("data"), &vec![].into());
    });
}

#[test]
fn d4_everyone_with_a_level_from_50_to_80_on_a_day() {
    with_days(|app, clock| async move {
        // Today's levels are others; the latest snapshot is of yesterday.
        plays(&app, "level", (0..USERS).map(|at| (user(at), 60))).await;
        clock.advance_ms(1_000);
        let score = |row: &String| row.rsplit(' ').next().unwrap().parse::<i64>().unwrap();
        for (label, day) in [("2026-02-20", 20), ("2026-02-21", 21), ("latest", 21)] {
            let scores = format!("/v1/boards/level/snapshots/{label}/scores?min_score=50&max_score=80");
            let expected: Vec<String> =
                everyone(day).into_iter().filter(|row| (50..=80).contains(&score(row))).collect();
            let whole = app.get(&format!("{scores}&page_size=1000")).await.good();
            assert_eq!(placed(&whole), expected);
            assert_eq!(whole.get("total"), &expected.len().into());
            let (mut found, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = app.get(&format!("{scores}&page_size=9{cursor}")).await.good();
                found.extend(placed(&page));
                let Some(next) = page.get("next_cursor").text() else { break };
                cursor = format!("&cursor={next}");
            }
            assert_eq!(found, expected);
        }
        let none = app.get("/v1/boards/level/snapshots/latest/scores?min_score=91").await.good();
        assert_eq!((placed(&none), none.get("total").number()), (vec![], 0));
    });
}

fn named(reply: &Exact) -> Vec<String> {
    let rows = reply.get("data").list().iter();
    rows.map(|row| format!("{:?} {:?}", row.get("user_id"), row.get("user_name"))).collect()
}

#[test]
fn d5_the_user_of_a_name_whatever_its_case() {
    with_app(|app, _| async move {
        for (user, name) in [("u1", "Hello"), ("u2", "hELLO"), ("u3", "Help"), ("u4", "Änne"), ("u5", "He")]
        {
            put(&app, &format!("/v1/users/{user}"), &format!(r#"{{"name":"{name}"}}"#)).await;
        }
        let found = async |query: &str| named(&app.get(&format!("/v1/users?{query}")).await.good());
        let hello = [r#""u1" "Hello""#, r#""u2" "hELLO""#];
        for query in ["name=hello", "name=Hello", "name=HELLO", "name=hello&limit=2"] {
            assert_eq!(found(query).await, hello, "{query}");
        }
        assert_eq!(found("name=hello&limit=1").await.len(), 1);
        assert_eq!(found("name=%C3%84NNE").await, [r#""u4" "Änne""#]);
        assert_eq!(found("name=hell").await, [""; 0]);
        assert_eq!(found("prefix=hel").await, [hello[0], hello[1], r#""u3" "Help""#]);
        assert_eq!(found("prefix=HE&limit=1").await, [r#""u5" "He""#]);
        assert_eq!(found("prefix=%C3%A4n").await, [r#""u4" "Änne""#]);
        assert_eq!(found("prefix=hellos").await, [""; 0]);
        app.ask(Method::DELETE, "/v1/users/u1", "").await;
        assert_eq!(found("name=hello").await, hello[1..]);
        assert_eq!(found("prefix=hello").await, hello[1..]);
    });
}

#[test]
fn d6_a_rename_leaves_past_snapshots_as_they_were() {
    with_app(|app, clock| async move {
        clock.set_ms(ms("2026-02-20T09:00:00Z"));
        put(&app, "/v1/boards/level", DAILY).await;
        put(&app, "/v1/users/u1", r#"{"name":"Hello"}"#).await;
        play(&app, "/v1/boards/level/scores", "u1", 80).await;
        clock.set_ms(ms("2026-02-21T00:00:00Z"));
        app.settle_due().await;
        put(&app, "/v1/users/u1", r#"{"name":"World"}"#).await;
        clock.set_ms(ms("2026-02-22T00:00:00Z"));
        app.settle_due().await;
        let name = async |path: &str| named(&app.get(path).await.good());
        for (label, then) in [
            ("2026-02-20", r#""u1" "Hello""#),
            ("2026-02-21", r#""u1" "World""#),
            ("latest", r#""u1" "World""#),
        ] {
            let snapshot = format!("/v1/boards/level/snapshots/{label}");
            assert_eq!(name(&format!("{snapshot}/official")).await, [then]);
            assert_eq!(name(&format!("{snapshot}/scores?from_rank=1")).await, [then]);
        }
        assert_eq!(name("/v1/boards/level/scores").await, [r#""u1" "World""#]);
        assert_eq!(name("/v1/users?name=world").await, [r#""u1" "World""#]);
        assert_eq!(name("/v1/users?name=hello").await, [""; 0]);
        app.assert_consistent().await;
    });
}
