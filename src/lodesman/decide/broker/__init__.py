"""What sites say of themselves, and how they regulate the flow of pilots towards themselves (SAM-Grid's brokering).

`ad` reads what a site publishes, `gate` decides whether it takes one more, `cycle` matches requests with sites.
"""
