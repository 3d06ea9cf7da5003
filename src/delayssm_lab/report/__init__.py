"""Tables, figures and pages that show what runs have found."""
