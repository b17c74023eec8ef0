//! Goal: the strongest source wins, and whatever is wrong is refused by name. Method: each source made up on the spot.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ffi::OsString;
use std::path::Path;

use clap::{Args as _, FromArgMatches as _};
use standings::config::table::{SETTINGS, sample};
use standings::config::{Flags, LogFormat, SettingError, Settings, load};

fn command() -> clap::Command {
    Flags::augment_args(clap::Command::new("serve"))
}

/// Settings from a file's text, variables and flags.
fn settings(
    file: Option<&str>,
    variables: &[(&str, &str)],
    flags: &[&str],
) -> Result<Settings, SettingError> {
    let folder = tempfile::tempdir().unwrap();
    if let Some(text) = file {
        std::fs::write(folder.path().join("standings.toml"), text).unwrap();
    }
    settings_in(folder.path(), variables, flags)
}

fn settings_in(folder: &Path, variables: &[(&str, &str)], flags: &[&str]) -> Result<Settings, SettingError> {
    let matches =
        command().try_get_matches_from(std::iter::once("serve").chain(flags.iter().copied())).unwrap();
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load(&Flags::from_arg_matches(&matches).unwrap(), variables, folder)
}

fn refusal(file: Option<&str>, variables: &[(&str, &str)], flags: &[&str]) -> String {
    settings(file, variables, flags).unwrap_err().to_string()
}

#[test]
fn defaults_are_allowed_and_as_documented() {
    let settings = settings(None, &[], &[]).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7700");
    assert_eq!(settings.data, Path::new("./standings-data"));
    assert_eq!(settings.request_limits.body_bytes_max, 1 << 20);
    assert_eq!(settings.rate_limit_per_second, None);
    assert_eq!(settings.plays_keep_days, None);
    assert_eq!(settings.tls, None);
    assert_eq!(settings.log_format, LogFormat::Text);
}

#[test]
fn a_flag_beats_a_variable_beats_the_file_beats_the_default() {
    let file =
        "connections_max = 1_000\nlisten = \"127.0.0.1:1\"\nbody_bytes_max = 2048\nlog_format = 'json'\n";
    let variables =
        [("STANDINGS_LISTEN", "127.0.0.1:2"), ("STANDINGS_CONNECTIONS_MAX", "2000"), ("PATH", "x")];
    let settings = settings(Some(file), &variables, &["--connections-max", "3000"]).unwrap();
    assert_eq!(settings.connection_limits.connections_max, 3000);
    assert_eq!(settings.listen.port(), 2);
    assert_eq!(settings.request_limits.body_bytes_max, 2048);
    assert_eq!(settings.log_format, LogFormat::Json);
    assert_eq!(settings.connection_limits.header_bytes_max, 16_384);
}

#[test]
fn a_named_file_replaces_the_usual_one_and_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("standings.toml"), "listen = '127.0.0.1:1'").unwrap();
    std::fs::write(folder.path().join("other.toml"), "listen = '127.0.0.1:2'").unwrap();
    let port = |variables, flags| {
        settings_in(folder.path(), variables, flags).map(|settings| settings.listen.port())
    };
    assert_eq!(port(&[], &[]).unwrap(), 1);
    assert_eq!(port(&[], &["--config", "other.toml"]).unwrap(), 2);
    assert_eq!(port(&[("STANDINGS_CONFIG", "other.toml")], &[]).unwrap(), 2);
    assert!(matches!(port(&[], &["--config", "none.toml"]), Err(SettingError::Unreadable { .. })));
}

#[test]
fn a_value_that_is_not_allowed_is_named_with_its_origin_and_what_is_allowed() {
    let from_file = refusal(Some("# one\n\nlisten = \"localhost\"\n"), &[], &[]);
    assert!(from_file.contains("`listen` cannot be `localhost`"), "{from_file}");
    assert!(from_file.contains("standings.toml, line 3"), "{from_file}");
    assert!(from_file.contains("127.0.0.1:7700"), "{from_file}");
    let from_variable = refusal(None, &[("STANDINGS_BODY_BYTES_MAX", "1MB")], &[]);
    assert!(from_variable.contains("variable STANDINGS_BODY_BYTES_MAX"), "{from_variable}");
    assert!(from_variable.contains("`1MB`") && from_variable.contains("1024 to"), "{from_variable}");
    let from_flag = refusal(None, &[], &["--log-level", "loud"]);
    assert!(from_flag.contains("flag --log-level") && from_flag.contains("`debug`"), "{from_flag}");
}

#[test]
fn every_setting_refuses_nonsense() {
    for setting in SETTINGS {
        // Any text that is not empty may be the name of a file.
        let nonsense =
            if ["data", "tls_certificate", "tls_key"].contains(&setting.name) { "" } else { "+1 nonsense" };
        let error = settings(None, &[(&setting.variable(), nonsense)], &[]).unwrap_err();
        assert!(matches!(error, SettingError::NotAllowed { name, .. } if name == setting.name), "{error}");
    }
    for (name, value) in [("plays_keep_days", "0"), ("connections_max", "-1"), ("connections_max", "+5")] {
        let flag = format!("--{}={value}", name.replace('_', "-"));
        assert!(settings(None, &[], &[&flag]).is_err(), "{name} = {value}");
    }
    for text in ["connections_max = true", "listen = 7700", "connections_max = [1]", "connections_max = 1.5"]
    {
        assert!(matches!(settings(Some(text), &[], &[]), Err(SettingError::NotAllowed { .. })), "{text}");
    }
}

#[test]
fn what_is_not_available_yet_is_refused_saying_so() {
    for (flag, value) in [("--store", "dynamodb"), ("--ranking", "redis"), ("--ranking", "table")] {
        let error = refusal(None, &[], &[flag, value]);
        assert!(error.contains("not available yet"), "{error}");
    }
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
    let error = refusal(Some("listen = '127.0.0.1:1'\nbody_byte_max = 1"), &[], &[]);
    assert!(error.contains("line 2") && error.contains("did you mean `body_bytes_max`"), "{error}");
    let error = refusal(None, &[("STANDINGS_LISTN", "x")], &[]);
    assert!(error.contains("did you mean `STANDINGS_LISTEN`"), "{error}");
    assert!(refusal(Some("[server]\nlisten = 'x'"), &[], &[]).contains("`server`"));
    assert!(refusal(Some("listen = "), &[], &[]).contains("line 1"));
    let others = [("STANDINGS_TEST_QUICK", "1"), ("STANDINGS_URL", "x"), ("STANDINGS_KEY", "sk_x")];
    assert!(settings(None, &others, &[]).is_ok(), "variables of others are left alone");
}

#[test]
fn certificate_and_key_come_together() {
    let error = refusal(None, &[], &["--tls-certificate", "a.pem"]);
    assert!(error.contains("`tls_key`") && error.contains("flag --tls-certificate"), "{error}");
    assert!(refusal(Some("tls_key = 'a.pem'"), &[], &[]).contains("`tls_certificate`"));
    assert!(settings(Some("tls_key = 'a.pem'"), &[], &["--tls-certificate", "b.pem"]).unwrap().tls.is_some());
}

#[test]
fn sample_help_and_settings_agree() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/standings.sample.toml");
    let kept = std::fs::read_to_string(kept).unwrap();
    assert_eq!(kept, sample(), "write it anew: cargo run -- config > docs/standings.sample.toml");
    let help = command().render_long_help().to_string();
    let mut uncommented = String::new();
    for setting in SETTINGS {
        assert!(help.contains(&format!("--{} <", setting.flag())), "--{} is not in the help", setting.flag());
        assert!(
            help.contains(&format!("[{}]", setting.variable())),
            "{} is not in the help",
            setting.variable()
        );
        let line = sample()
            .lines()
            .find(|line| line.starts_with(&format!("# {} = ", setting.name)))
            .map(str::to_owned);
        uncommented.push_str(&line.expect("every setting is in the sample")[2..]);
        uncommented.push('\n');
    }
    settings(Some(&uncommented), &[], &[]).expect("the sample is a file that works");
}
