"""The side of the package that meets the host: only a component can import its modules, as they need the generated ``wit_world``."""
