//! Tools for the trip planner, which is written in YAML. They read a small built-in table, so that every run has the
//! same results.

use hatchery_guest::prelude::*;

struct City {
    name: &'static str,
    /// Price of a flight, one way, in euros.
    fare: u32,
    airline: &'static str,
    /// Names and prices per night in euros, cheapest first.
    hotels: &'static [(&'static str, u32)],
    sky: &'static str,
    celsius: i32,
}

const CITIES: [City; 3] = [
    City {
        name: "Lisbon",
        fare: 140,
        airline: "Atlantic Air",
        hotels: &[("Casa do Rio", 70), ("Alfama Palace", 160)],
        sky: "sunny",
        celsius: 24,
    },
    City {
        name: "Oslo",
        fare: 180,
        airline: "Fjordwing",
        hotels: &[("Harbour Hostel", 60), ("Grand Nord", 210)],
        sky: "cloudy",
        celsius: 12,
    },
    City {
        name: "Kyoto",
        fare: 720,
        airline: "Crane Airways",
        hotels: &[("Ryokan Maple", 110), ("Hotel Kamo", 190)],
        sky: "light rain",
        celsius: 18,
    },
];

fn city(name: &str) -> Result<&'static City, ToolError> {
    CITIES.iter().find(|city| city.name.eq_ignore_ascii_case(name.trim())).ok_or_else(|| {
        let known = CITIES.map(|city| city.name).join(", ");
        ToolError::recoverable(format!("no data for `{name}`; available: {known}"))
    })
}

/// The destination of a trip.
#[derive(Deserialize, JsonSchema)]
struct Destination {
    /// The city's name.
    city: String,
}

/// A flight.
#[derive(Serialize)]
struct Flight {
    airline: &'static str,
    price: u32,
}

/// Finds the cheapest flight to a city; the price is for one way, in euros.
#[tool]
async fn find_flights(to: Destination) -> Result<Flight, ToolError> {
    let city = city(&to.city)?;
    Ok(Flight { airline: city.airline, price: city.fare })
}

/// A hotel.
#[derive(Serialize)]
struct Hotel {
    name: &'static str,
    per_night: u32,
}

/// Finds hotels in a city, cheapest first; prices are in euros.
#[tool]
async fn find_hotels(at: Destination) -> Result<Value, ToolError> {
    let hotels = city(&at.city)?.hotels.iter().map(|&(name, per_night)| Hotel { name, per_night });
    Ok(json!({ "hotels": hotels.collect::<Vec<_>>() }))
}

/// Returns the usual weather in a city.
#[tool]
async fn weather(at: Destination) -> Result<Value, ToolError> {
    let city = city(&at.city)?;
    Ok(json!({ "sky": city.sky, "celsius": city.celsius }))
}

/// The arguments of `estimate_cost`.
#[derive(Deserialize, JsonSchema)]
struct Trip {
    /// The city's name.
    city: String,
    /// Number of nights.
    nights: u32,
    /// Index of the hotel in the result of `find_hotels`, from 0.
    #[serde(default)]
    hotel: usize,
}

/// Returns the price of flights there and back and of the hotel, in euros.
#[tool]
async fn estimate_cost(trip: Trip) -> Result<Value, ToolError> {
    let city = city(&trip.city)?;
    let Some((hotel, per_night)) = city.hotels.get(trip.hotel) else {
        return Err(ToolError::recoverable(format!("{} has hotels 0 to {}", city.name, city.hotels.len() - 1)));
    };
    let total = u64::from(city.fare) * 2 + u64::from(*per_night) * u64::from(trip.nights);
    Ok(json!({ "hotel": hotel, "total": total }))
}

hatchery_guest::export! { tools: [find_flights, find_hotels, weather, estimate_cost] }

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn a_trip_costs_two_flights_and_the_nights() {
        let cost = |args| block_on(estimate_cost().call(args)).unwrap();
        assert_eq!(cost(json!({ "city": "lisbon", "nights": 3 })), json!({ "hotel": "Casa do Rio", "total": 490 }));
        assert_eq!(cost(json!({ "city": "Lisbon", "nights": 3, "hotel": 1 }))["total"], 760);
    }

    #[test]
    fn an_unknown_destination_is_an_error_for_the_model() {
        let error = block_on(weather().call(json!({ "city": "Rome" }))).unwrap_err();
        assert_eq!(error, ToolError::recoverable("no data for `Rome`; available: Lisbon, Oslo, Kyoto"));
        let trip = json!({ "city": "Oslo", "nights": 1, "hotel": 2 });
        assert_eq!(block_on(estimate_cost().call(trip)).unwrap_err(), ToolError::recoverable("Oslo has hotels 0 to 1"));
    }

    #[test]
    fn flights_and_hotels_have_prices() {
        let to = || json!({ "city": "Kyoto" });
        assert_eq!(block_on(find_flights().call(to())).unwrap(), json!({ "airline": "Crane Airways", "price": 720 }));
        assert_eq!(block_on(find_hotels().call(to())).unwrap()["hotels"][0]["per_night"], 110);
    }
}
