//! An LLM agent with two tools and a callback.
//!
//! The host runs the conversation, and calls this component for the tools and the callback only. The last roll is
//! stored in the session's state.

use hatchery_guest::prelude::*;

/// The arguments of `roll_die`.
#[derive(Deserialize, JsonSchema)]
struct Roll {
    /// Number of sides of the die; 6 by default.
    #[serde(default = "default_sides")]
    sides: u32,
}

fn default_sides() -> u32 {
    6
}

/// Rolls a die and returns the number.
#[tool]
async fn roll_die(roll: Roll, cx: ToolContext) -> Result<u32, ToolError> {
    let rolled = getrandom::u32()? % roll.sides.max(1) + 1;
    cx.set_state("last_sides", roll.sides)?;
    cx.set_state("last_roll", rolled)?;
    Ok(rolled)
}

/// The arguments of `check_prime`.
#[derive(Deserialize, JsonSchema)]
struct Numbers {
    /// The numbers to check.
    numbers: Vec<u32>,
}

/// Returns those of the numbers that are prime.
#[tool]
async fn check_prime(Numbers { numbers }: Numbers) -> Value {
    let primes: Vec<u32> = numbers.into_iter().filter(|number| is_prime(*number)).collect();
    json!({ "primes": primes })
}

/// Answers calls for impossible dice before the tool runs.
#[callback(before_tool)]
async fn check_sides(call: &ToolCall) -> Result<Option<Value>, Error> {
    let sides = call.args.get("sides").and_then(Value::as_i64);
    Ok(sides
        .filter(|sides| *sides < 2)
        .map(|sides| json!({ "error": format!("a die has two sides or more, not {sides}") })))
}

/// Rolls dice and knows prime numbers.
#[agent]
fn dice() -> LlmAgent {
    LlmAgent::new("dice")
        .model("scripted:dice/answers.yaml")
        .instruction(
            "Roll dice with `roll_die`; never make up a number. To tell whether numbers are prime, use `check_prime`.",
        )
        .tool(roll_die)
        .tool(check_prime)
        .before_tool(check_sides)
}

hatchery_guest::export! { agents: [dice], tools: [roll_die, check_prime], callbacks: [check_sides] }

fn is_prime(number: u32) -> bool {
    number > 1
        && (2..).take_while(|divisor| divisor <= &(number / divisor)).all(|divisor| !number.is_multiple_of(divisor))
}

#[cfg(test)]
mod tests {
    use hatchery_guest::testing::{Before, Host};

    use super::*;

    #[test]
    fn a_roll_is_stored_in_the_session() {
        let host = Host::new();
        let rolled: u32 = host.call(roll_die, json!({ "sides": 20 })).unwrap();
        assert!((1..=20).contains(&rolled));
        assert_eq!((host.state_value("last_roll"), host.state_value("last_sides")), (Some(rolled), Some(20)));
    }

    #[test]
    fn a_die_has_six_sides_by_default() {
        let host = Host::new();
        host.call::<u32>(roll_die, ()).unwrap();
        assert_eq!(host.state_value("last_sides"), Some(6));
    }

    #[test]
    fn dice_that_cannot_be_rolled_are_an_error() {
        let call = |sides: i32| ToolCall {
            tool: "roll_die".into(),
            args: [("sides".into(), sides.into())].into_iter().collect(),
        };
        let refused = json!({ "error": "a die has two sides or more, not 1" });
        assert_eq!(Host::new().before_tool(check_sides, call(1)), Ok(Before::Respond(refused)));
        assert_eq!(Host::new().before_tool(check_sides, call(2)), Ok(Before::Proceed));
    }

    #[test]
    fn primes_are_recognized() {
        let primes: Vec<u32> = (0..30).filter(|number| is_prime(*number)).collect();
        assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert!(is_prime(4_294_967_291) && !is_prime(u32::MAX));
    }
}
