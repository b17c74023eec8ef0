//! The table of settings: name, default, what is allowed, and what it is for.
//!
//! Flags, variables, `--help`, the sample file and error messages all come from here, so they cannot disagree.
//! What a value means once it is there stands in `config.rs`.

use std::fmt::Write as _;

/// One setting. Its name in the file is `name`; its variable and its flag follow from it.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The name in the file, with underscores.
    pub name: &'static str,
    /// What stands for the value in `--help`.
    pub placeholder: &'static str,
    /// The value where nobody gives one; nothing if the setting may be absent.
    pub default: Option<&'static str>,
    /// A value to show in the sample where there is no default.
    pub example: &'static str,
    /// Whether it is a number in the file, or text in quotes.
    pub number: bool,
    /// What is allowed, as it stands in help and errors.
    pub allowed: &'static str,
    /// What it is for, in full sentences.
    pub help: &'static str,
}

impl Setting {
    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("{}{}", super::VARIABLE_PREFIX, self.name.to_ascii_uppercase())
    }

    /// The flag, without its dashes.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// What `--help` says.
    pub fn help_text(&self) -> String {
        let default = self.default.map_or_else(|| "none".to_owned(), |default| format!("`{default}`"));
        format!("{} Allowed: {}. Default: {default}. [{}]", self.help, self.allowed, self.variable())
    }
}

const fn text(name: &'static str, placeholder: &'static str, default: &'static str) -> Setting {
    Setting {
        name,
        placeholder,
        default: Some(default),
        example: default,
        number: false,
        allowed: "",
        help: "",
    }
}

const fn number(name: &'static str, default: &'static str) -> Setting {
    Setting { number: true, ..text(name, "NUMBER", default) }
}

/// Every setting, in the order of the sample file.
pub const SETTINGS: &[Setting] = &[
    Setting {
        allowed: "an IP address and a port, such as 127.0.0.1:7700 or [::1]:7700; port 0 takes any free one",
        help: "Where to listen. Addresses that others can reach are refused while there is no API key.",
        ..text("listen", "ADDRESS:PORT", "127.0.0.1:7700")
    },
    Setting {
        allowed: "a folder, which is made if it does not exist",
        help: "Where the embedded store keeps its data.",
        ..text("data", "FOLDER", "./standings-data")
    },
    Setting {
        allowed: "`embedded`; `dynamodb` is not available yet",
        help: "Where every item lives.",
        ..text("store", "STORE", "embedded")
    },
    Setting {
        allowed: "`memory`; `redis` and `table` are not available yet",
        help: "What answers where a user stands.",
        ..text("ranking", "RANKING", "memory")
    },
    Setting {
        default: None,
        allowed: "a PEM file, together with `tls_key`",
        help: "The certificate chain for HTTPS, the server's own first. It is read again when it changes.",
        ..text("tls_certificate", "FILE", "/etc/standings/certificate.pem")
    },
    Setting {
        default: None,
        allowed: "a PEM file, together with `tls_certificate`",
        help: "The private key of the certificate.",
        ..text("tls_key", "FILE", "/etc/standings/key.pem")
    },
    Setting {
        allowed: "1024 to 1073741824",
        help: "The largest body of a request, in bytes.",
        ..number("body_bytes_max", "1048576")
    },
    Setting {
        allowed: "8192 to 1048576",
        help: "The most bytes that the headers of a request take together.",
        ..number("header_bytes_max", "16384")
    },
    Setting {
        allowed: "1 to 3600",
        help: "How long a request may take until its reply begins, in seconds; its body must have arrived after half \
               of that.",
        ..number("request_seconds_max", "10")
    },
    Setting {
        allowed: "1 to 3600",
        help: "How long a connection may take to send the headers of its next request, in seconds. Keep it above the \
               idle timeout of a load balancer in front.",
        ..number("idle_seconds_max", "75")
    },
    Setting {
        allowed: "1 to 1000000",
        help: "The most connections at a time; further ones are answered 503.",
        ..number("connections_max", "4096")
    },
    Setting {
        allowed: "0 to 1000000",
        help: "The most requests a second for each API key; 0 means no limit.",
        ..number("rate_limit_per_second", "0")
    },
    Setting {
        default: None,
        allowed: "1 to 36500; leave it out to keep plays for good",
        help: "For how many days plays are kept. Repeats are recognised and scores can be recomputed as far back as that.",
        ..number("plays_keep_days", "400")
    },
    Setting {
        allowed: "1 to 86400",
        help: "How often a ranking is written to disk, in seconds; a start replays what came after.",
        ..number("checkpoint_seconds", "60")
    },
    Setting {
        allowed: "1 to 3600",
        help: "How long a shutdown waits for requests under way, in seconds.",
        ..number("shutdown_seconds_max", "15")
    },
    Setting {
        allowed: "`error`, `warn`, `info`, `debug` or `trace`",
        help: "How much is logged, to standard error; `debug` has a line for every request. Libraries are heard from `warn` up.",
        ..text("log_level", "LEVEL", "info")
    },
    Setting {
        allowed: "`text` or `json`",
        help: "The form of log lines.",
        ..text("log_format", "FORMAT", "text")
    },
];

/// The setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The sample file: every setting, explained, at its default, commented out.
pub fn sample() -> String {
    let mut sample = String::from(
        "# Settings of the Standings server, all at their defaults. The file is taken from `--config FILE`, or is\n\
         # `standings.toml` in the working folder. A variable (STANDINGS_LISTEN) is stronger than the file, a flag\n\
         # (--listen) stronger than both.\n",
    );
    for setting in SETTINGS {
        let quote = if setting.number { "" } else { "\"" };
        let value = setting.default.unwrap_or(setting.example);
        let absent = if setting.default.is_none() { " Not set by default." } else { "" };
        let explanation = format!("{} Allowed: {}.{absent}", setting.help, setting.allowed);
        sample.push('\n');
        for line in wrapped(&explanation, 100) {
            let _ = writeln!(sample, "# {line}");
        }
        let _ = writeln!(sample, "# {} = {quote}{value}{quote}", setting.name);
    }
    sample
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
