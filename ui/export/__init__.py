"""What leaves the app as a file for people: pages, sheets and the button that saves them."""
