//! What people write for a duration, a size, a number of CPUs, read into one unit each.
//!
//! It knows nothing of ranges or of which setting is meant; the caller adds both to the error.

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time, held in milliseconds. A bare number is seconds: `30`, `30s`, `2m`, `1h`, `500ms`.
    Milliseconds,
    /// Size, held in bytes. `m` and `g` are powers of 1024, as container engines read them,
    /// and so are `MB` and `MiB`: `512m`, `1.5g`, `1GiB`.
    Bytes,
    /// CPUs, held in thousandths, 0 for no limit: `1.5`, `2`, `none`.
    CpuThousandths,
    /// Things: `128`.
    Count,
    /// Characters: `20000`.
    Characters,
}

/// A bare number below this is hardly meant as bytes: `512` is somebody's `512m`.
const BARE_BYTES_MIN: u64 = 1 << 20;

impl Unit {
    /// The forms that [`Unit::read`] takes, for an error or a hint.
    pub fn forms(self) -> &'static str {
        match self {
            Self::Milliseconds => "30 (seconds), 30s, 2m, 1h or 500ms",
            Self::Bytes => "512m, 1.5g, 1GiB or a number of bytes from 1048576 up",
            Self::CpuThousandths => "1.5, 2 or none",
            Self::Count | Self::Characters => "a whole number",
        }
    }

    /// The number that `text` means, or what is wrong with it.
    pub fn read(self, text: &str) -> Result<u64, &'static str> {
        let text = text.trim();
        let split = text
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | ',')))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let suffix = suffix.trim().to_ascii_lowercase();
        if self == Self::CpuThousandths
            && number.is_empty()
            && matches!(suffix.as_str(), "none" | "unlimited")
        {
            return Ok(0);
        }
        let thousandths = thousandths(number)?;
        let scaled = |factor: u128| {
            u64::try_from(thousandths * factor / 1000).map_err(|_| "it is too large")
        };
        match self {
            Self::Milliseconds => match suffix.as_str() {
                "" | "s" | "sec" | "secs" | "second" | "seconds" => scaled(1000),
                "ms" | "msec" | "millisecond" | "milliseconds" => scaled(1),
                "m" | "min" | "mins" | "minute" | "minutes" => scaled(60_000),
                "h" | "hour" | "hours" => scaled(3_600_000),
                _ => Err("its unit is not known"),
            },
            Self::Bytes => match suffix.as_str() {
                "" => match scaled(1)? {
                    0..BARE_BYTES_MIN => Err("its unit is missing"),
                    bytes => Ok(bytes),
                },
                "b" | "byte" | "bytes" => scaled(1),
                "k" | "kb" | "kib" => scaled(1 << 10),
                "m" | "mb" | "mib" => scaled(1 << 20),
                "g" | "gb" | "gib" => scaled(1 << 30),
                "t" | "tb" | "tib" => scaled(1 << 40),
                _ => Err("its unit is not known"),
            },
            Self::CpuThousandths if suffix.is_empty() => scaled(1000),
            Self::Count | Self::Characters
                if suffix.is_empty() && thousandths.is_multiple_of(1000) =>
            {
                scaled(1)
            }
            Self::CpuThousandths | Self::Count | Self::Characters => Err("it is not such a number"),
        }
    }

    /// `value` as a person would write it.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Milliseconds if value.is_multiple_of(3_600_000) && value > 0 => {
                format!("{} h", value / 3_600_000)
            }
            Self::Milliseconds if value.is_multiple_of(1000) => format!("{} s", value / 1000),
            Self::Milliseconds => format!("{value} ms"),
            Self::Bytes if value.is_multiple_of(1 << 30) && value > 0 => {
                format!("{} GiB", value >> 30)
            }
            Self::Bytes if value.is_multiple_of(1 << 20) && value > 0 => {
                format!("{} MiB", value >> 20)
            }
            Self::Bytes if value.is_multiple_of(1 << 10) && value > 0 => {
                format!("{} KiB", value >> 10)
            }
            Self::Bytes => format!("{value} bytes"),
            Self::CpuThousandths if value == 0 => "no limit".to_owned(),
            Self::CpuThousandths => format!("{}", value as f64 / 1000.0),
            Self::Count | Self::Characters => value.to_string(),
        }
    }
}

/// Decimal digits with at most one point, times 1000; exact, which a float would not be.
fn thousandths(number: &str) -> Result<u128, &'static str> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return Err("it is not a number with a unit");
    }
    if whole.len() > 18 {
        return Err("it is too large");
    }
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    format!("{whole}{fraction}")
        .parse()
        .map_err(|_| "it is not a number with a unit")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::Unit::*;

    #[test]
    fn what_people_write_is_read() {
        for (unit, text, value) in [
            (Milliseconds, "30", 30_000),
            (Milliseconds, " 30s ", 30_000),
            (Milliseconds, "2m", 120_000),
            (Milliseconds, "1 h", 3_600_000),
            (Milliseconds, "500ms", 500),
            (Milliseconds, "1.5", 1_500),
            (Milliseconds, "0.25s", 250),
            (Bytes, "512m", 512 << 20),
            (Bytes, "512M", 512 << 20),
            (Bytes, "512MB", 512 << 20),
            (Bytes, "1GiB", 1 << 30),
            (Bytes, "1.5g", 3 << 29),
            (Bytes, "1073741824", 1 << 30),
            (Bytes, "900b", 900),
            (CpuThousandths, "1.5", 1_500),
            (CpuThousandths, "none", 0),
            (Count, "128", 128),
            (Characters, "20_000", 20_000),
        ] {
            assert_eq!(unit.read(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (unit, text) in [
            (Milliseconds, ""),
            (Milliseconds, "soon"),
            (Milliseconds, "-5"),
            (Milliseconds, "5 days"),
            (Milliseconds, "1.2.3"),
            (Milliseconds, "99999999999999999999"),
            (Bytes, "512"),
            (Bytes, "1,5g"),
            (Bytes, "99999999999999g"),
            (Count, "1.5"),
            (Count, "12m"),
            (CpuThousandths, "two"),
        ] {
            assert!(unit.read(text).is_err(), "{text}");
        }
        assert_eq!(Bytes.read("512"), Err("its unit is missing"));
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for (unit, value) in [
            (Milliseconds, 90_000),
            (Milliseconds, 1),
            (Milliseconds, 7_200_000),
            (Bytes, 3 << 29),
            (Bytes, 1 << 30),
        ] {
            assert_eq!(unit.read(&unit.show(value)), Ok(value));
        }
    }
}
