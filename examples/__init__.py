"""Programs on the library, as a user would write them; nothing of the library imports them."""
