//! Where values come from: the file, the environment, the flags. Here they are only text with an origin; the later
//! source wins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use toml::de::{DeTable, DeValue};

use super::VARIABLE_PREFIX;
use super::error::{Origin, SettingError};
use super::table::{SETTINGS, find};

/// The file that is read when no other is named.
const FILE: &str = "standings.toml";

/// Variables of other parts of Standings, which are no settings of the server.
const OTHER_VARIABLES: [&str; 3] = ["STANDINGS_CONFIG", "STANDINGS_URL", "STANDINGS_KEY"];
const TEST_PREFIX: &str = "STANDINGS_TEST_";

/// A name is suggested if it is at least this much like the one given, from 0 to 1.
const LIKENESS_MIN: f64 = 0.7;

/// Values by the name of their setting.
pub(super) type Values = BTreeMap<&'static str, (String, Origin)>;

/// The flags of one command line: `--config`, and one flag for each setting.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    config: Option<PathBuf>,
    values: Vec<(&'static str, String)>,
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let value = |name: &'static str| Some((name, matches.get_one::<String>(name)?.clone()));
        let values = SETTINGS.iter().filter_map(|setting| value(setting.name)).collect();
        Ok(Flags { config: matches.get_one::<PathBuf>("config").cloned(), values })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!("A file of settings. Default: {FILE} in the working folder, if there is one. [STANDINGS_CONFIG]"));
        SETTINGS.iter().fold(command.arg(config), |command, setting| {
            command.arg(
                Arg::new(setting.name)
                    .long(setting.flag())
                    .value_name(setting.placeholder)
                    .help(setting.help_text()),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

/// All values that were given, the strongest of each.
pub(super) fn gather(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    working_folder: &Path,
) -> Result<Values, SettingError> {
    let (named, variables) = read_environment(environment)?;
    let mut values = Values::new();
    let path = match flags.config.clone().or(named) {
        Some(path) => Some(working_folder.join(path)),
        None => Some(working_folder.join(FILE)).filter(|path| path.exists()),
    };
    if let Some(path) = path {
        let text = std::fs::read_to_string(&path)
            .map_err(|source| SettingError::Unreadable { path: path.clone(), source })?;
        read_file(&path, &text, &mut values)?;
    }
    values.extend(variables);
    for (name, value) in &flags.values {
        let flag = find(name).map(|setting| format!("--{}", setting.flag())).unwrap_or_default();
        values.insert(name, (value.clone(), Origin::Flag(flag)));
    }
    Ok(values)
}

fn read_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(Option<PathBuf>, Values), SettingError> {
    let (mut config, mut values) = (None, Values::new());
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(VARIABLE_PREFIX)) else { continue };
        if name == "STANDINGS_CONFIG" {
            config = Some(PathBuf::from(value));
        } else if let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == name) {
            // What is not UTF-8 is allowed nowhere, and the message shows it as far as it can be shown.
            let value = value.to_string_lossy().into_owned();
            values.insert(setting.name, (value, Origin::Variable(name.to_owned())));
        } else if !name.starts_with(TEST_PREFIX) && !OTHER_VARIABLES.contains(&name) {
            let known = SETTINGS.iter().map(super::table::Setting::variable).collect::<Vec<_>>();
            return Err(SettingError::UnknownVariable { name: name.to_owned(), hint: hint(name, &known) });
        }
    }
    Ok((config, values))
}

fn read_file(path: &Path, text: &str, values: &mut Values) -> Result<(), SettingError> {
    let line_at = |offset: usize| 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| SettingError::NotToml {
        path: path.to_owned(),
        line: line_at(error.span().map_or(0, |span| span.start)),
        why: error.message().to_owned(),
    })?;
    for (name, value) in table.get_ref() {
        let line = line_at(name.span().start);
        let Some(setting) = find(name.get_ref()) else {
            let known = SETTINGS.iter().map(|setting| setting.name.to_owned()).collect::<Vec<_>>();
            let (path, name) = (path.to_owned(), name.get_ref().to_string());
            return Err(SettingError::UnknownName { path, line, hint: hint(&name, &known), name });
        };
        let origin = Origin::File { path: path.to_owned(), line };
        let written = match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(integer) if setting.number => Ok(integer.to_string()),
            // Text without quotes, a list, a table: shown as it is written.
            _ => Err(text.get(value.span()).unwrap_or_default().to_owned()),
        };
        let value = written.map_err(|value| SettingError::NotAllowed {
            name: setting.name,
            value,
            origin: origin.clone(),
            allowed: setting.allowed,
        })?;
        values.insert(setting.name, (value, origin));
    }
    Ok(())
}

/// The nearest of the known names, or else all of them.
fn hint(name: &str, known: &[String]) -> String {
    let likeness = |candidate: &String| {
        strsim::jaro_winkler(&name.to_ascii_lowercase(), &candidate.to_ascii_lowercase())
    };
    let nearest = known.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match nearest.filter(|candidate| likeness(candidate) >= LIKENESS_MIN) {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => format!("; known: {}", known.join(", ")),
    }
}
