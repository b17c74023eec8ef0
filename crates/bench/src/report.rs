//! The one form in which every bench reports.

use std::io::Write as _;

use indicatif::{ProgressBar, ProgressStyle};

/// One line of a report.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) ours: f64,
    pub(crate) rival: Option<f64>,
    pub(crate) unit: &'static str,
    /// Whether more is better, as of plays a second; less is, as of microseconds.
    pub(crate) more_is_better: bool,
    /// The ratio to reach.
    pub(crate) reach: Option<f64>,
}

impl Row {
    pub(crate) fn less(what: impl Into<String>, ours: f64, rival: Option<f64>, unit: &'static str) -> Self {
        Row { what: what.into(), ours, rival, unit, more_is_better: false, reach: None }
    }

    pub(crate) fn more(what: impl Into<String>, ours: f64, rival: Option<f64>, unit: &'static str) -> Self {
        Row { more_is_better: true, ..Row::less(what, ours, rival, unit) }
    }

    pub(crate) fn reach(mut self, ratio: f64) -> Self {
        self.reach = Some(ratio);
        self
    }

    /// As [`Row::reach`] where a ratio is to be reached at all.
    pub(crate) fn reach_if(self, wanted: bool, ratio: f64) -> Self {
        if wanted { self.reach(ratio) } else { self }
    }

    /// Above 1 where ours is better.
    fn ratio(&self) -> Option<f64> {
        self.rival.map(|rival| if self.more_is_better { self.ours / rival } else { rival / self.ours })
    }
}

/// Prints rows as they come: at once as lines of JSON, or at the end as one table.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Report { json, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Row) {
        if self.json {
            let line = serde_json::json!({
                "what": row.what, "ours": row.ours, "rival": row.rival, "ratio": row.ratio(), "unit": row.unit,
            });
            let mut out = std::io::stdout().lock();
            // Nobody reading any more is no reason to stop measuring half-way with a panic.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        self.rows.push(row);
    }

    /// Prints the table, unless the rows went out as JSON.
    pub(crate) fn print(&self, title: &str, rival: &str) {
        if self.json {
            return;
        }
        println!("\n{title}\n{}\n", machine());
        println!("{:<28} {:>12} {:>12}   {:<8} {:>8} {:>8}", "", "ours", rival, "", "ratio", "reach");
        for row in &self.rows {
            let rival = row.rival.map_or_else(|| "—".to_owned(), figure);
            let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}×"));
            let reach = row.reach.map_or_else(String::new, |reach| format!("{reach}×"));
            println!(
                "{:<28} {:>12} {:>12}   {:<8} {:>8} {:>8}",
                row.what,
                figure(row.ours),
                rival,
                row.unit,
                ratio,
                reach
            );
        }
    }
}

/// A bar on a terminal, nothing elsewhere.
pub(crate) fn progress(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:36} {bar:30} {human_pos}/{human_len} {elapsed}");
    let bar = ProgressBar::new(length).with_message(what);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

fn figure(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.3}"),
        middle if middle < 1_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn machine() -> String {
    let read = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        line.split_once(':').map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    // Not those that this program may use: a bench may have chosen one for itself.
    let cores = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processors = cores.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{} × {}, memory {}",
        processors,
        read("/proc/cpuinfo", "model name"),
        read("/proc/meminfo", "MemTotal")
    )
}
